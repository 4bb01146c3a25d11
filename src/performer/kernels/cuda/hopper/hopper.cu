#include "performer/kernels/cuda/hopper/hopper.h"

#include <algorithm>

#include "performer/kernels/cuda/common/splits.h"
#include "performer/kernels/cuda/hopper/call.h"
#include "performer/kernels/cuda/hopper/causal/causal.h"
#include "performer/kernels/cuda/hopper/merge.h"
#include "performer/kernels/cuda/hopper/output.h"
#include "performer/kernels/cuda/hopper/pull_back.h"
#include "performer/kernels/cuda/hopper/state.h"

namespace performer::kernels::cuda::hopper {
namespace {

int slices(const FavorProblem& p) { return padded_slices(static_cast<int>(p.dim), p.features); }

/// Parts of a sequence that are summed by blocks of their own: as many as fill the machine,
/// counting 6 tiles for what a block does once.
int count_splits(std::int64_t items, std::int64_t length, int dim, int slices,
                 int multiprocessors) {
  const std::int64_t tiles = std::max<std::int64_t>(1, divide_up(length, 64));
  const std::int64_t blocks =
      std::max<std::int64_t>(1, items) * (slices / block_slices(dim, slices));
  return cheapest_parts(std::min<std::int64_t>(tiles, multiprocessors), 19, [&](std::int64_t n) {
    return divide_up(blocks * n, multiprocessors) * (divide_up(tiles, n) + 6);
  });
}

/// What the forward pass keeps between its kernels.
struct ForwardPlan {
  Sides sides;
  StateArguments state;
  MergeArguments merge;
  OutputArguments output;
  std::size_t bytes = 0;

  ForwardPlan(const FavorProblem& p, const Device& device, void* memory) {
    Workspace workspace(memory);
    const auto dim = static_cast<int>(p.dim);
    const int count = slices(p);
    sides = take_sides(workspace, p, count, {.plain = false, .norm = false});
    const std::int64_t items = p.sequences * p.state_heads;
    state.tokens = keys(p);
    state.projection = sides.key.projection;
    state.slices = count, state.items = items;
    state.splits = count_splits(items, p.key_length, dim, count, device.multiprocessors);
    const int partials = state.splits * split_partials(dim, count);
    const std::int64_t rows = items * partials * count * 64;
    state.sum = workspace.take<float>(rows * p.dim);
    state.normalizer = workspace.take<float>(rows);
    state.scale = workspace.take<float>(rows);
    merge.sum = state.sum, merge.normalizer = state.normalizer, merge.scale = state.scale;
    merge.partials = partials, merge.slices = count;
    merge.features = static_cast<int>(p.features), merge.items = items;
    merge.initial = p.initial;
    merge.tiles = workspace.take<std::uint16_t>(items * count * 64 * (p.dim + 8));
    merge.factor = workspace.take<float>(items * p.dim);
    merge.column = workspace.take<float>(items * count * 64);
    output.tokens = queries(p);
    output.projection = sides.query.projection;
    output.slices = count, output.items = p.sequences * p.heads;
    output.state_heads = static_cast<int>(p.state_heads);
    output.tiles = merge.tiles, output.column = merge.column, output.factor = merge.factor;
    bytes = workspace.bytes();
  }
};

struct BackwardPlan {
  Sides sides;
  StateTileArguments state_tiles;
  PullBackArguments pull_rows, pull_keys;
  StateArguments rows_sum;
  GradientArguments merge;
  std::size_t bytes = 0;

  BackwardPlan(const FavorProblem& p, const BackwardInputs& in, const Device& device,
               void* memory) {
    Workspace workspace(memory);
    const auto dim = static_cast<int>(p.dim);
    const int count = slices(p);
    const auto features = static_cast<int>(p.features);
    sides = take_sides(workspace, p, count, {.plain = true, .norm = false});
    const std::int64_t items = p.sequences * p.heads, states = p.sequences * p.state_heads;
    const std::int64_t wide = states * count * 64;

    state_tiles.state = in.state;
    state_tiles.slices = count, state_tiles.features = features, state_tiles.items = states;
    state_tiles.tiles = workspace.take<std::uint16_t>(wide * p.dim);
    state_tiles.column = workspace.take<float>(wide);

    pull_rows.tokens = rows(p, in);
    pull_rows.projection = sides.query.projection;
    pull_rows.slices = count, pull_rows.items = items;
    pull_rows.state_heads = static_cast<int>(p.state_heads);
    pull_rows.tiles = state_tiles.tiles, pull_rows.column = state_tiles.column;
    pull_rows.along = workspace.take<float>(items * p.query_length);

    rows_sum.tokens = pull_rows.tokens;
    rows_sum.tokens.along = pull_rows.along;
    rows_sum.projection = sides.query.projection;
    rows_sum.slices = count, rows_sum.items = items;
    rows_sum.splits = count_splits(items, p.query_length, dim, count, device.multiprocessors);
    rows_sum.log2_scale = in.state.log2_scale;
    rows_sum.state_heads = pull_rows.state_heads, rows_sum.features = features;
    const int partials = rows_sum.splits * split_partials(dim, count);
    const std::int64_t parts = items * partials * count * 64;
    rows_sum.sum = workspace.take<float>(parts * p.dim);
    rows_sum.normalizer = workspace.take<float>(parts);

    merge.sum = rows_sum.sum, merge.normalizer = rows_sum.normalizer;
    merge.partials = partials * static_cast<int>(p.heads / p.state_heads);
    merge.slices = count, merge.features = features, merge.items = states;
    merge.initial = p.initial, merge.state = in.state, merge.grad_state = in.grad_state;
    merge.high = workspace.take<std::uint16_t>(wide * p.dim);
    merge.low = workspace.take<std::uint16_t>(wide * p.dim);
    merge.column = workspace.take<float>(wide);
    merge.normalizer_sum = workspace.take<float>(wide);

    pull_keys = pull_rows;
    pull_keys.tokens = keys(p);
    pull_keys.projection = sides.key.projection;
    pull_keys.items = states;
    pull_keys.tiles = merge.high, pull_keys.low = merge.low;
    pull_keys.column = merge.column, pull_keys.normalizer = merge.normalizer_sum;
    pull_keys.norm = p.norm_term ? static_cast<float>(p.scale) : 0;
    bytes = workspace.bytes();
  }
};

}  // namespace

bool serves_forward(const FavorProblem& p, const Device& device) {
  const bool dims = p.dim == p.value_dim && (p.dim == 32 || p.dim == 64 || p.dim == 128);
  const bool common = device.major == 9 && dims && p.features > 0 && p.features <= 512 &&
                      p.map == Map::kExponential && p.dtype != Dtype::kFloat &&
                      p.w_query.data != nullptr && rows_fit(p.q) && rows_fit(p.k) && rows_fit(p.v);
  if (!common) return false;
  if (p.causal) return causal_forward_fits(p);
  return p.query_offsets == nullptr && output_fits(static_cast<int>(p.dim), slices(p));
}

bool serves_backward(const FavorProblem& p, const Device& device) {
  if (!serves_forward(p, device) || p.state_heads != p.key_heads) return false;
  return p.causal ? causal_backward_fits(p) : pull_back_fits(static_cast<int>(p.dim), slices(p));
}

std::size_t forward_workspace(const FavorProblem& p, const Device& device) {
  return p.causal ? causal_forward_workspace(p, device) : ForwardPlan(p, device, nullptr).bytes;
}

std::size_t backward_workspace(const FavorProblem& p, const Device& device) {
  return p.causal ? causal_backward_workspace(p, device)
                  : BackwardPlan(p, {}, device, nullptr).bytes;
}

cudaError_t forward(const FavorProblem& p, const ForwardOutputs& outputs, const Run& run) {
  if (p.sequences == 0) return cudaSuccess;
  // Autograd calls from threads of its own, where no context is current yet: maps need one.
  cudaError_t error = cudaSetDevice(run.device.index);
  if (error != cudaSuccess) return error;
  if (p.causal) return causal_forward(p, outputs, run);
  const auto dim = static_cast<int>(p.dim);
  ForwardPlan plan(p, run.device, run.workspace);
  plan.merge.state = outputs.state;
  if (plan.merge.partials == 1 && p.initial.kv == nullptr && p.features == plan.merge.slices * 64) {
    plan.state.sum = outputs.state.kv, plan.state.normalizer = outputs.state.normalizer;
    plan.merge.sum = plan.state.sum, plan.merge.normalizer = plan.state.normalizer;
  }
  plan.output.out = target(outputs.out);
  plan.output.row_sum = outputs.row_sum, plan.output.row_log2 = outputs.row_log2_scale;
  error = pack_sides(p, plan.sides, run.stream);
  if (error == cudaSuccess) error = sum_keys(plan.state, dim, run.stream);
  if (error == cudaSuccess) error = merge_states(plan.merge, dim, run.stream);
  if (error != cudaSuccess || p.query_length == 0) return error;
  return write_output(plan.output, dim, run.device.multiprocessors, run.stream);
}

cudaError_t backward(const FavorProblem& p, const BackwardInputs& inputs,
                     const BackwardOutputs& outputs, const Run& run) {
  if (p.sequences == 0) return cudaSuccess;
  cudaError_t error = cudaSetDevice(run.device.index);
  if (error != cudaSuccess) return error;
  if (p.causal) return causal_backward(p, inputs, outputs, run);
  const auto dim = static_cast<int>(p.dim);
  BackwardPlan plan(p, inputs, run.device, run.workspace);
  plan.merge.grad_initial = outputs.state;
  plan.pull_rows.x = target(outputs.q);
  plan.pull_keys.x = target(outputs.k), plan.pull_keys.y = target(outputs.v);
  error = pack_sides(p, plan.sides, run.stream);
  if (error == cudaSuccess) error = pack_state(plan.state_tiles, dim, run.stream);
  if (error == cudaSuccess && p.query_length > 0) {
    error = pull_back_rows(plan.pull_rows, dim, run.device.multiprocessors, run.stream);
  }
  if (error == cudaSuccess) error = sum_rows(plan.rows_sum, dim, run.stream);
  if (error == cudaSuccess) error = merge_gradients(plan.merge, dim, run.stream);
  if (error != cudaSuccess || p.key_length == 0) return error;
  return pull_back_keys(plan.pull_keys, dim, run.device.multiprocessors, run.stream);
}

}  // namespace performer::kernels::cuda::hopper
