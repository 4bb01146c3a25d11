#include "performer/kernels/cuda/hopper/causal/causal.h"

#include <algorithm>
#include <cstdint>

#include "performer/kernels/cuda/common/splits.h"
#include "performer/kernels/cuda/hopper/call.h"
#include "performer/kernels/cuda/hopper/causal/layout.cuh"
#include "performer/kernels/cuda/hopper/causal/prefix.h"
#include "performer/kernels/cuda/hopper/causal/scan.h"

namespace performer::kernels::cuda::hopper {
namespace {

int slices_of(const FavorProblem& p) { return scan_slices(static_cast<int>(p.dim), p.features); }

bool is_half(const FavorProblem& p) { return p.dtype == Dtype::kHalf; }

bool layout_fits(const FavorProblem& p, bool plain) {
  const int slices = slices_of(p);
  if (slices == 0) return false;
  return p.dim == 32 ? ScanLayout<32>(slices, one_side(p), plain).fits()
                     : ScanLayout<64>(slices, one_side(p), plain).fits();
}

/// Segments of a sequence: more of them fill the machine, yet what lies before each costs a pass.
int count_segments(const FavorProblem& p, int multiprocessors) {
  const std::int64_t items = std::max<std::int64_t>(1, p.sequences * p.heads);
  const std::int64_t of_one = p.query_offsets == nullptr
                                  ? p.key_length
                                  : p.key_length / std::max<std::int64_t>(1, p.sequences);
  const std::int64_t tiles = std::max<std::int64_t>(1, divide_up(of_one, 64));
  // In twentieths of a tile; a block costs 3 tiles by itself, the first pass half of the second.
  return cheapest_parts(std::min<std::int64_t>(tiles, multiprocessors), 19, [&](std::int64_t n) {
    return divide_up(items * n, multiprocessors) * (divide_up(tiles, n) + 3) * (n == 1 ? 20 : 31);
  });
}

StateView take_states(Workspace& workspace, std::int64_t states, const FavorProblem& p) {
  const std::int64_t rows = states * p.features;
  return {workspace.take<float>(rows * p.dim), workspace.take<float>(rows),
          workspace.take<std::int32_t>(rows)};
}

/// What the scans of a call share.
struct Plan {
  Sides sides;
  StateView segments;  // [sequences, state_heads, segments, ..]
  std::int32_t* order = nullptr;
  float* along = nullptr;  // backward: [batch, heads, length]
  ScanArguments scan;
  std::size_t bytes = 0;

  Plan(const FavorProblem& p, const Device& device, bool backward, void* memory) {
    Workspace workspace(memory);
    const bool plain = backward && is_half(p);
    const int slices = slices_of(p);
    sides = take_sides(workspace, p, slices, {.plain = plain, .norm = true});
    scan.slices = slices, scan.features = static_cast<int>(p.features);
    scan.sequences = p.sequences;
    scan.heads = static_cast<int>(p.heads), scan.state_heads = static_cast<int>(p.state_heads);
    scan.segments = count_segments(p, device.multiprocessors);
    scan.offsets = p.query_offsets;
    if (scan.segments > 1) {
      segments = take_states(workspace, p.sequences * p.state_heads * scan.segments, p);
    }
    if (p.query_offsets != nullptr && p.sequences <= kMostOrdered) {
      order = workspace.take<std::int32_t>(p.sequences);
    }
    scan.order = order;
    if (backward) along = workspace.take<float>(p.batch * p.heads * p.query_length);
    bytes = workspace.bytes();
  }

  cudaError_t begin(const FavorProblem& p, cudaStream_t stream) const {
    const cudaError_t error = pack_sides(p, sides, stream);
    if (error != cudaSuccess || order == nullptr) return error;
    return order_sequences(p.query_offsets, order, static_cast<int>(p.sequences), stream);
  }

  /// `before` is what lies before the whole scan. The state each segment begins with is found,
  /// where there are several.
  cudaError_t open(ScanArguments& a, const FavorProblem& p, const StateView& before,
                   cudaStream_t stream) const {
    a.initial = before;
    if (a.segments == 1) return cudaSuccess;
    ScanArguments sums = a;
    sums.alone = true;
    sums.heads = sums.state_heads;
    sums.carried.heads = sums.state_heads;
    sums.reading_side = sums.carried_side;  // nobody reads
    sums.initial = {}, sums.last = segments, sums.last_of_segments = true;
    sums.last_scale = nullptr;
    const auto dim = static_cast<int>(p.dim);
    cudaError_t error = scan_apply(sums, dim, stream);
    if (error != cudaSuccess) return error;
    PrefixArguments prefix;
    prefix.sums = segments, prefix.initial = before;
    prefix.negated = prefix.reverse = a.reverse;
    prefix.states = p.sequences * p.state_heads;
    prefix.segments = a.segments, prefix.features = a.features;
    a.initial = segments, a.initial_of_segments = true;
    return prefix_states(prefix, dim, stream);
  }
};

void set_target(ScanArguments& a, const FavorProblem& p, const TokenView& tokens,
                std::int64_t heads) {
  a.to = target(tokens);
  a.to_mapped = make_map(a.to_map, tokens, p, heads, p.query_length);
}

/// Keys are carried on to the queries' heads.
Tokens of_heads(Tokens tokens, std::int64_t heads) {
  tokens.heads = static_cast<int>(heads);
  return tokens;
}

}  // namespace

int scan_slices(int dim, std::int64_t features) {
  const std::int64_t slices = (features + kRows - 1) / kRows;
  if (dim > 64 || slices > 4) return 0;
  return dim == 32 || slices > 2 ? 4 : 2;
}

bool causal_forward_fits(const FavorProblem& p) {
  return layout_fits(p, false) && p.key_length < (std::int64_t{1} << 31) - kRows &&
         p.query_length == p.key_length;
}

bool causal_backward_fits(const FavorProblem& p) {
  return causal_forward_fits(p) && layout_fits(p, is_half(p)) && p.heads == p.key_heads;
}

std::size_t causal_forward_workspace(const FavorProblem& p, const Device& device) {
  return Plan(p, device, false, nullptr).bytes;
}

std::size_t causal_backward_workspace(const FavorProblem& p, const Device& device) {
  return Plan(p, device, true, nullptr).bytes;
}

cudaError_t causal_forward(const FavorProblem& p, const ForwardOutputs& outputs, const Run& run) {
  const Plan plan(p, run.device, false, run.workspace);
  ScanArguments a = plan.scan;
  a.carried = of_heads(keys(p), p.heads), a.reading = queries(p);
  a.carried_side = plan.sides.key.projection, a.reading_side = plan.sides.query.projection;
  a.last = outputs.state;
  set_target(a, p, outputs.out, p.heads);
  a.row_sum = outputs.row_sum, a.row_log2 = outputs.row_log2_scale;
  cudaError_t error = plan.begin(p, run.stream);
  if (error == cudaSuccess) error = plan.open(a, p, p.initial, run.stream);
  if (error == cudaSuccess) error = scan_apply(a, static_cast<int>(p.dim), run.stream);
  return error;
}

cudaError_t causal_backward(const FavorProblem& p, const BackwardInputs& inputs,
                            const BackwardOutputs& outputs, const Run& run) {
  const Plan plan(p, run.device, true, run.workspace);
  const auto dim = static_cast<int>(p.dim);
  ScanArguments forth = plan.scan;
  forth.carried = keys(p), forth.reading = rows(p, inputs);
  forth.carried_side = plan.sides.key.projection, forth.reading_side = plan.sides.query.projection;
  set_target(forth, p, outputs.q, p.heads);
  forth.along = plan.along;

  ScanArguments back = plan.scan;
  back.reverse = true;
  back.carried = rows(p, inputs), back.reading = keys(p);
  back.carried.along = plan.along;
  back.carried_side = plan.sides.query.projection, back.reading_side = plan.sides.key.projection;
  back.norm = p.norm_term ? static_cast<float>(p.scale) : 0;
  StateView after = inputs.grad_state;  // of the final state, at its scale
  after.log2_scale = inputs.state.log2_scale;

  cudaError_t error = plan.begin(p, run.stream);
  if (error == cudaSuccess) error = plan.open(forth, p, p.initial, run.stream);
  if (error == cudaSuccess) error = scan_pull_back(forth, dim, run.stream);
  if (error == cudaSuccess) {
    error = plan.open(back, p, after.kv == nullptr ? StateView{} : after, run.stream);
  }
  if (error != cudaSuccess) return error;
  ScanArguments of_values = back;
  set_target(of_values, p, outputs.v, p.key_heads);
  error = scan_apply(of_values, dim, run.stream);
  if (error != cudaSuccess) return error;
  set_target(back, p, outputs.k, p.key_heads);
  if (outputs.state.kv != nullptr) {
    if (p.initial.kv == nullptr) return cudaErrorInvalidValue;
    back.last = outputs.state;
    back.last.log2_scale = nullptr;
    back.last_scale = p.initial.log2_scale;
  }
  return scan_pull_back(back, dim, run.stream);
}

}  // namespace performer::kernels::cuda::hopper
