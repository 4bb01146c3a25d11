#include "performer/kernels/cuda/hopper/hopper.h"

#include <algorithm>
#include <cmath>

#include "performer/kernels/cuda/hopper/merge.h"
#include "performer/kernels/cuda/hopper/output.h"
#include "performer/kernels/cuda/hopper/pack.h"
#include "performer/kernels/cuda/hopper/pull_back.h"
#include "performer/kernels/cuda/hopper/state.h"

namespace performer::kernels::cuda::hopper {
namespace {

constexpr double kLog2E = 1.4426950408889634074;

/// Hands out pieces of the workspace; with no workspace, counts them.
class Carver {
 public:
  explicit Carver(void* workspace) : base_(static_cast<char*>(workspace)) {}

  template <class T>
  T* take(std::int64_t count) {
    const std::size_t at = used_;
    used_ += (static_cast<std::size_t>(count) * sizeof(T) + 255) / 256 * 256;
    return base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + at);
  }
  std::size_t used() const { return used_; }

 private:
  char* base_;
  std::size_t used_ = 0;
};

bool rows_fit(const TokenView& t) { return std::abs(t.token) < (std::int64_t{1} << 22); }

bool is_vector(const TokenView& t) {
  const auto aligned = [](std::int64_t stride) { return stride % 8 == 0; };
  return t.element == 1 && reinterpret_cast<std::uintptr_t>(t.data) % 16 == 0 && aligned(t.batch) &&
         aligned(t.head) && aligned(t.token);
}

using Encode = decltype(&cuTensorMapEncodeTiled);

/// The driver's function, found once; null where the driver lacks it.
Encode encoder() {
  static const Encode encode = [] {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result{};
    const cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found,
                                                               12000, cudaEnableDefault, &result);
    if (error != cudaSuccess) static_cast<void>(cudaGetLastError());  // tokens are gathered instead
    return error == cudaSuccess && result == cudaDriverEntryPointSuccess
               ? reinterpret_cast<Encode>(found)
               : nullptr;
  }();
  return encode;
}

/// Boxes of 64 tokens of one head, swizzled as tiles are. False where TMA cannot read the tensor.
bool make_map(CUtensorMap& map, const TokenView& t, const FavorProblem& p, std::int64_t heads,
              std::int64_t length) {
  if (!is_vector(t) || length == 0 || encoder() == nullptr) return false;
  const std::int64_t sizes[4] = {p.dim, length, heads, p.batch};
  const std::int64_t steps[4] = {1, t.token, t.head, t.batch};
  cuuint64_t dims[4];
  cuuint64_t strides[3];
  for (int i = 0; i < 4; ++i) {
    dims[i] = static_cast<cuuint64_t>(sizes[i]);
    if (i == 0) continue;
    // The stride of a dimension of size 1 is never used.
    const std::int64_t stride = sizes[i] == 1 ? p.dim : steps[i];
    if (stride <= 0) return false;
    strides[i - 1] = static_cast<cuuint64_t>(stride) * 2;
  }
  const cuuint32_t box[4] = {static_cast<cuuint32_t>(p.dim < 64 ? p.dim : 64), 64, 1, 1};
  const cuuint32_t unit[4] = {1, 1, 1, 1};
  return encoder()(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, t.data, dims, strides, box, unit,
                   CU_TENSOR_MAP_INTERLEAVE_NONE,
                   p.dim < 64 ? CU_TENSOR_MAP_SWIZZLE_64B : CU_TENSOR_MAP_SWIZZLE_128B,
                   CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                   CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

Source source(const TokenView& t) {
  return {static_cast<const std::uint16_t*>(t.data), t.batch, t.head, t.token, t.element};
}

Target target(const TokenView& t) {
  return {static_cast<std::uint16_t*>(t.data), t.batch, t.head, t.token, t.element, is_vector(t)};
}

Tokens keys(const FavorProblem& p) {
  Tokens t;
  t.x = source(p.k), t.y = source(p.v);
  t.mapped = make_map(t.x_map, p.k, p, p.key_heads, p.key_length) &&
             make_map(t.y_map, p.v, p, p.key_heads, p.key_length);
  t.half = p.dtype == Dtype::kHalf;
  t.length = p.key_length;
  t.heads = static_cast<int>(p.state_heads);
  t.x_heads = t.y_heads = static_cast<int>(p.key_heads);
  t.mask = p.key_mask;
  t.mask_batch = p.mask_batch, t.mask_token = p.mask_token;
  t.bias = p.key_bias;
  t.bias_heads = static_cast<int>(p.key_bias_heads);
  t.bias_batch = p.key_bias_batch, t.bias_head = p.key_bias_head, t.bias_token = p.key_bias_token;
  t.norm = p.norm_term ? static_cast<float>(-0.5 * p.scale * kLog2E) : 0;
  return t;
}

Tokens queries(const FavorProblem& p) {
  Tokens t;
  t.x = source(p.q);
  t.mapped = make_map(t.x_map, p.q, p, p.heads, p.query_length);
  t.half = p.dtype == Dtype::kHalf;
  t.length = p.query_length;
  t.heads = t.x_heads = t.y_heads = static_cast<int>(p.heads);
  return t;
}

Tokens rows(const FavorProblem& p, const BackwardInputs& in) {
  Tokens t = queries(p);
  t.y = source(in.grad_out), t.o = source(in.out);
  t.mapped = t.mapped && make_map(t.y_map, in.grad_out, p, p.heads, p.query_length);
  t.vector = is_vector(in.out);
  t.row_sum = in.row_sum, t.row_log2 = in.row_log2_scale;
  return t;
}

int slices(const FavorProblem& p) { return padded_slices(static_cast<int>(p.dim), p.features); }

/// Parts of a sequence that are summed by blocks of their own: as many as fill the machine,
/// counting 6 tiles for what a block does once.
int count_splits(std::int64_t items, std::int64_t length, int dim, int slices,
                 int multiprocessors) {
  const std::int64_t tiles = std::max<std::int64_t>(1, (length + 63) / 64);
  const std::int64_t blocks =
      std::max<std::int64_t>(1, items) * (slices / block_slices(dim, slices));
  const auto up = [](std::int64_t a, std::int64_t b) { return (a + b - 1) / b; };
  std::int64_t best = 1, least = INT64_MAX;
  for (std::int64_t splits = 1; splits <= std::min<std::int64_t>(tiles, multiprocessors);
       ++splits) {
    const std::int64_t cost = up(blocks * splits, multiprocessors) * (up(tiles, splits) + 6);
    // More splits take more memory: only for a gain of a twentieth.
    if (least == INT64_MAX || cost * 20 < least * 19) best = splits, least = cost;
  }
  return static_cast<int>(best);
}

/// One side's projection: where it is packed, and the kernel's arguments.
struct Side {
  PackArguments pack;
  Projection projection;
};

Side take_side(Carver& carver, const FavorProblem& p, const Parameter& weights,
               const Parameter& bias, bool plain) {
  Side side;
  PackArguments& a = side.pack;
  a.weights = weights, a.bias = bias;
  a.half = p.dtype == Dtype::kHalf;
  a.mirrored = p.mirrored;
  a.log2_factor = static_cast<float>(kLog2E * std::sqrt(p.scale));
  a.plain_factor = static_cast<float>(std::sqrt(p.scale));
  a.features = static_cast<int>(p.features), a.slices = slices(p);
  const std::int64_t heads =
      std::max(weights.heads, bias.data == nullptr ? std::int64_t{1} : bias.heads);
  a.heads = static_cast<int>(heads);
  const std::int64_t rows = heads * a.slices * 64;
  a.high = carver.take<std::uint16_t>(rows * p.dim);
  a.low = carver.take<std::uint16_t>(rows * p.dim);
  if (plain) a.plain = carver.take<std::uint16_t>(rows * p.dim);
  a.column = carver.take<float>(rows);
  side.projection = {a.high, a.low, a.plain, a.column, a.heads};
  return side;
}

bool one_side(const FavorProblem& p) {
  return p.w_query.data == p.w_key.data && p.w_query.heads == p.w_key.heads &&
         p.bias_query.data == nullptr && p.bias_key.data == nullptr;
}

/// What the forward pass keeps between its kernels.
struct ForwardPlan {
  Side key, query;
  StateArguments state;
  MergeArguments merge;
  OutputArguments output;
  std::size_t bytes = 0;

  ForwardPlan(const FavorProblem& p, const Device& device, void* workspace) {
    Carver carver(workspace);
    const auto dim = static_cast<int>(p.dim);
    const int count = slices(p);
    key = take_side(carver, p, p.w_key, p.bias_key, false);
    query = one_side(p) ? key : take_side(carver, p, p.w_query, p.bias_query, false);
    const std::int64_t items = p.sequences * p.state_heads;
    state.tokens = keys(p);
    state.projection = key.projection;
    state.slices = count, state.items = items;
    state.splits = count_splits(items, p.key_length, dim, count, device.multiprocessors);
    const int partials = state.splits * split_partials(dim, count);
    const std::int64_t rows = items * partials * count * 64;
    state.sum = carver.take<float>(rows * p.dim);
    state.normalizer = carver.take<float>(rows);
    state.scale = carver.take<float>(rows);
    merge.sum = state.sum, merge.normalizer = state.normalizer, merge.scale = state.scale;
    merge.partials = partials, merge.slices = count;
    merge.features = static_cast<int>(p.features), merge.items = items;
    merge.initial = p.initial;
    merge.tiles = carver.take<std::uint16_t>(items * count * 64 * (p.dim + 8));
    merge.factor = carver.take<float>(items * p.dim);
    merge.column = carver.take<float>(items * count * 64);
    output.tokens = queries(p);
    output.projection = query.projection;
    output.slices = count, output.items = p.sequences * p.heads;
    output.state_heads = static_cast<int>(p.state_heads);
    output.tiles = merge.tiles, output.column = merge.column, output.factor = merge.factor;
    bytes = carver.used();
  }
};

struct BackwardPlan {
  Side key, query;
  StateTileArguments state_tiles;
  PullBackArguments pull_rows, pull_keys;
  StateArguments rows_sum;
  GradientArguments merge;
  std::size_t bytes = 0;

  BackwardPlan(const FavorProblem& p, const BackwardInputs& in, const Device& device,
               void* workspace) {
    Carver carver(workspace);
    const auto dim = static_cast<int>(p.dim);
    const int count = slices(p);
    const auto features = static_cast<int>(p.features);
    key = take_side(carver, p, p.w_key, p.bias_key, true);
    query = one_side(p) ? key : take_side(carver, p, p.w_query, p.bias_query, true);
    const std::int64_t items = p.sequences * p.heads, states = p.sequences * p.state_heads;
    const std::int64_t wide = states * count * 64;

    state_tiles.state = in.state;
    state_tiles.slices = count, state_tiles.features = features, state_tiles.items = states;
    state_tiles.tiles = carver.take<std::uint16_t>(wide * p.dim);
    state_tiles.column = carver.take<float>(wide);

    pull_rows.tokens = rows(p, in);
    pull_rows.projection = query.projection;
    pull_rows.slices = count, pull_rows.items = items;
    pull_rows.state_heads = static_cast<int>(p.state_heads);
    pull_rows.tiles = state_tiles.tiles, pull_rows.column = state_tiles.column;
    pull_rows.along = carver.take<float>(items * p.query_length);

    rows_sum.tokens = pull_rows.tokens;
    rows_sum.tokens.along = pull_rows.along;
    rows_sum.projection = query.projection;
    rows_sum.slices = count, rows_sum.items = items;
    rows_sum.splits = count_splits(items, p.query_length, dim, count, device.multiprocessors);
    rows_sum.log2_scale = in.state.log2_scale;
    rows_sum.state_heads = pull_rows.state_heads, rows_sum.features = features;
    const int partials = rows_sum.splits * split_partials(dim, count);
    const std::int64_t parts = items * partials * count * 64;
    rows_sum.sum = carver.take<float>(parts * p.dim);
    rows_sum.normalizer = carver.take<float>(parts);

    merge.sum = rows_sum.sum, merge.normalizer = rows_sum.normalizer;
    merge.partials = partials * static_cast<int>(p.heads / p.state_heads);
    merge.slices = count, merge.features = features, merge.items = states;
    merge.initial = p.initial, merge.state = in.state, merge.grad_state = in.grad_state;
    merge.high = carver.take<std::uint16_t>(wide * p.dim);
    merge.low = carver.take<std::uint16_t>(wide * p.dim);
    merge.column = carver.take<float>(wide);
    merge.normalizer_sum = carver.take<float>(wide);

    pull_keys = pull_rows;
    pull_keys.tokens = keys(p);
    pull_keys.projection = key.projection;
    pull_keys.items = states;
    pull_keys.tiles = merge.high, pull_keys.low = merge.low;
    pull_keys.column = merge.column, pull_keys.normalizer = merge.normalizer_sum;
    pull_keys.norm = p.norm_term ? static_cast<float>(p.scale) : 0;
    bytes = carver.used();
  }
};

cudaError_t pack_sides(const FavorProblem& p, const Side& key, const Side& query,
                       cudaStream_t stream) {
  const auto dim = static_cast<int>(p.dim);
  const cudaError_t error = pack_projection(key.pack, dim, stream);
  return error != cudaSuccess || one_side(p) ? error : pack_projection(query.pack, dim, stream);
}

}  // namespace

bool serves_forward(const FavorProblem& p, const Device& device) {
  const bool dims = p.dim == p.value_dim && (p.dim == 32 || p.dim == 64 || p.dim == 128);
  return device.major == 9 && dims && p.features > 0 && p.features <= 512 && !p.causal &&
         p.map == Map::kExponential && p.dtype != Dtype::kFloat && p.w_query.data != nullptr &&
         p.query_offsets == nullptr && rows_fit(p.q) && rows_fit(p.k) && rows_fit(p.v) &&
         output_fits(static_cast<int>(p.dim), slices(p));
}

bool serves_backward(const FavorProblem& p, const Device& device) {
  return serves_forward(p, device) && p.state_heads == p.key_heads &&
         pull_back_fits(static_cast<int>(p.dim), slices(p));
}

std::size_t forward_workspace(const FavorProblem& p, const Device& device) {
  return ForwardPlan(p, device, nullptr).bytes;
}

std::size_t backward_workspace(const FavorProblem& p, const Device& device) {
  return BackwardPlan(p, {}, device, nullptr).bytes;
}

cudaError_t forward(const FavorProblem& p, const ForwardOutputs& outputs, const Device& device,
                    void* workspace, cudaStream_t stream) {
  if (p.sequences == 0) return cudaSuccess;
  // Autograd calls from threads of its own, where no context is current yet: maps need one.
  cudaError_t error = cudaSetDevice(device.index);
  if (error != cudaSuccess) return error;
  const auto dim = static_cast<int>(p.dim);
  ForwardPlan plan(p, device, workspace);
  plan.merge.state = outputs.state;
  if (plan.merge.partials == 1 && p.initial.kv == nullptr && p.features == plan.merge.slices * 64) {
    plan.state.sum = outputs.state.kv, plan.state.normalizer = outputs.state.normalizer;
    plan.merge.sum = plan.state.sum, plan.merge.normalizer = plan.state.normalizer;
  }
  plan.output.out = target(outputs.out);
  plan.output.row_sum = outputs.row_sum, plan.output.row_log2 = outputs.row_log2_scale;
  error = pack_sides(p, plan.key, plan.query, stream);
  if (error == cudaSuccess) error = sum_keys(plan.state, dim, stream);
  if (error == cudaSuccess) error = merge_states(plan.merge, dim, stream);
  if (error != cudaSuccess || p.query_length == 0) return error;
  return write_output(plan.output, dim, device.multiprocessors, stream);
}

cudaError_t backward(const FavorProblem& p, const BackwardInputs& inputs,
                     const BackwardOutputs& outputs, const Device& device, void* workspace,
                     cudaStream_t stream) {
  if (p.sequences == 0) return cudaSuccess;
  cudaError_t error = cudaSetDevice(device.index);
  if (error != cudaSuccess) return error;
  const auto dim = static_cast<int>(p.dim);
  BackwardPlan plan(p, inputs, device, workspace);
  plan.merge.grad_initial = outputs.state;
  plan.pull_rows.x = target(outputs.q);
  plan.pull_keys.x = target(outputs.k), plan.pull_keys.y = target(outputs.v);
  error = pack_sides(p, plan.key, plan.query, stream);
  if (error == cudaSuccess) error = pack_state(plan.state_tiles, dim, stream);
  if (error == cudaSuccess && p.query_length > 0) {
    error = pull_back_rows(plan.pull_rows, dim, device.multiprocessors, stream);
  }
  if (error == cudaSuccess) error = sum_rows(plan.rows_sum, dim, stream);
  if (error == cudaSuccess) error = merge_gradients(plan.merge, dim, stream);
  if (error != cudaSuccess || p.key_length == 0) return error;
  return pull_back_keys(plan.pull_keys, dim, device.multiprocessors, stream);
}

}  // namespace performer::kernels::cuda::hopper
