#pragma once

#include "performer/kernels/cuda/portable/tokens.cuh"

// Slices of 64 features of W, with the constants folded in: exponential maps work in units of log2,
// l = log2(e) (sqrt(scale) W x + bias + token term). An absent W is the identity (M' = D).
namespace performer::kernels::cuda::portable {

/// W and bias of one head.
struct Projection {
  const float* w;     // [half, d], null: the identity
  const float* bias;  // [m], null: 0
  int d, m, half;     // mirrored: features half.. are those of -W
  Factor factor, bias_factor;
  bool vectors;

  __device__ Projection(const Problem& p, const Parameter& weights, const Parameter& biases,
                        std::int64_t head, std::int64_t heads)
      : w(static_cast<const float*>(weights.data)),
        bias(static_cast<const float*>(biases.data)),
        d(static_cast<int>(p.dim)),
        m(static_cast<int>(p.features)),
        half(p.mirrored ? m / 2 : m),
        factor(p.projection),
        bias_factor(p.bias) {
    if (w != nullptr) w += head_of(head, heads, weights.heads) * half * d;
    if (bias != nullptr) bias += head_of(head, heads, biases.heads) * m;
    vectors = d % 4 == 0 && reinterpret_cast<std::uintptr_t>(w) % 16 == 0;
  }

  __device__ __forceinline__ float scaled(float x, bool mirrored) const {
    const float y = fmaf(x, factor.high, x * factor.low);
    return mirrored ? -y : y;
  }

  /// Columns (dims) column..+3 of feature `row`; zeros beyond m and d.
  __device__ __forceinline__ float4 operator()(int row, int column) const {
    if (row >= m || column >= d) return make_float4(0, 0, 0, 0);
    float x[4];
    if (w == nullptr) {
#pragma unroll
      for (int i = 0; i < 4; ++i) x[i] = row == column + i ? 1.0F : 0.0F;
    } else {
      const float* from = w + static_cast<std::int64_t>(row < half ? row : row - half) * d + column;
      if (vectors) {
        const float4 y = *reinterpret_cast<const float4*>(from);
        x[0] = y.x, x[1] = y.y, x[2] = y.z, x[3] = y.w;
      } else {
#pragma unroll
        for (int i = 0; i < 4; ++i) x[i] = column + i < d ? from[i] : 0;
      }
    }
    const bool mirrored = row >= half;
    return make_float4(scaled(x[0], mirrored), scaled(x[1], mirrored), scaled(x[2], mirrored),
                       scaled(x[3], mirrored));
  }

  /// log2(e) bias of feature r; 0 beyond m.
  __device__ __forceinline__ float log2_bias(int r) const {
    if (bias == nullptr || r >= m) return 0;
    return fmaf(bias[r], bias_factor.high, bias[r] * bias_factor.low);
  }
};

__device__ __forceinline__ Projection query_projection(const Problem& p, std::int64_t head) {
  return {p, p.w_query, p.bias_query, head, p.heads};
}
__device__ __forceinline__ Projection key_projection(const Problem& p, std::int64_t state_head) {
  return {p, p.w_key, p.bias_key, state_head, p.state_heads};
}

/// tile[dim - column][feature - first]: an operand of u = W x over the 64 dims from `column` on.
__device__ __forceinline__ void load_projection(float* tile, const Projection& w, int first,
                                                int column) {
  fill_columns(tile, column, [&](int row, int at) { return w(first + row, at); });
}

/// tile[feature - first][dim - column]: an operand of g W, which pulls a gradient back; its result
/// is to be multiplied by Problem::pull_back.
__device__ __forceinline__ void load_projection_rows(float* tile, const Projection& w, int first,
                                                     int column) {
  fill_rows(tile, column, [&](int row, int at) { return w(first + row, at); });
}

/// Dims of the 64 from `column` on that are there: the depth of their product.
__device__ __forceinline__ int depth_of(int width, int column) {
  return width - column < kTile ? width - column : kTile;
}

}  // namespace performer::kernels::cuda::portable
