#include "performer/kernels/cuda/hopper/call.h"

#include <algorithm>
#include <cmath>

#include "performer/kernels/cuda/common/problem.h"

namespace performer::kernels::cuda::hopper {
namespace {

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

Source source(const TokenView& t) {
  return {static_cast<const std::uint16_t*>(t.data), t.batch, t.head, t.token, t.element};
}

struct SideParameters {
  const Parameter &weights, &bias;
};

Side take_side(Workspace& workspace, const FavorProblem& p, const SideParameters& of, int slices,
               SideParts parts) {
  const auto& [weights, bias] = of;
  Side side;
  PackArguments& a = side.pack;
  a.weights = weights, a.bias = bias;
  a.half = p.dtype == Dtype::kHalf;
  a.mirrored = p.mirrored;
  a.log2_factor = static_cast<float>(kLog2E * std::sqrt(p.scale));
  a.plain_factor = static_cast<float>(std::sqrt(p.scale));
  a.features = static_cast<int>(p.features), a.slices = slices;
  const std::int64_t heads =
      std::max(weights.heads, bias.data == nullptr ? std::int64_t{1} : bias.heads);
  a.heads = static_cast<int>(heads);
  const std::int64_t rows = heads * a.slices * 64;
  a.high = workspace.take<std::uint16_t>(rows * p.dim);
  a.low = workspace.take<std::uint16_t>(rows * p.dim);
  if (parts.plain) a.plain = workspace.take<std::uint16_t>(rows * p.dim);
  a.column = workspace.take<float>(rows);
  if (parts.norm) a.norm = workspace.take<float>(rows);
  side.projection = {a.high, a.low, a.plain, a.column, a.heads, a.norm};
  return side;
}

}  // namespace

bool rows_fit(const TokenView& t) { return std::abs(t.token) < (std::int64_t{1} << 22); }

Target target(const TokenView& t) {
  return {static_cast<std::uint16_t*>(t.data), t.batch, t.head, t.token, t.element, is_vector(t)};
}

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

Sides take_sides(Workspace& workspace, const FavorProblem& p, int slices, SideParts parts) {
  const Side key = take_side(workspace, p, {p.w_key, p.bias_key}, slices, parts);
  if (one_side(p)) return {key, key};
  return {key, take_side(workspace, p, {p.w_query, p.bias_query}, slices, parts)};
}

bool one_side(const FavorProblem& p) {
  return p.w_query.data == p.w_key.data && p.w_query.heads == p.w_key.heads &&
         p.bias_query.data == nullptr && p.bias_key.data == nullptr;
}

cudaError_t pack_sides(const FavorProblem& p, const Sides& sides, cudaStream_t stream) {
  const auto dim = static_cast<int>(p.dim);
  const cudaError_t error = pack_projection(sides.key.pack, dim, stream);
  return error != cudaSuccess || one_side(p) ? error
                                             : pack_projection(sides.query.pack, dim, stream);
}

}  // namespace performer::kernels::cuda::hopper
