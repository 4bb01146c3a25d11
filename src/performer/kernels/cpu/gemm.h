#pragma once

#include "performer/kernels/cpu/simd.h"

// C [M, N] = A [M, K] B [K, N] in float32, sized for tiles that stay in the second-level cache.
// A is read one number at a time and may have any strides; rows of B and C are contiguous.
namespace performer::kernels::PERFORMER_ISA {

struct Left {
  const float* data;
  std::ptrdiff_t row, k;  // strides
};

/// Row-major, or in panels of kPanel columns, one after the other ([N / kPanel, K, kPanel]): a
/// panel then lies in consecutive cache lines.
struct Right {
  const float* data;
  std::ptrdiff_t k;      // stride of k
  std::ptrdiff_t panel;  // distance of panels

  static Right rows(const float* data, std::ptrdiff_t k) { return {data, k, kPanel}; }
  static Right panels(const float* data, std::int64_t depth) {
    return {data, kPanel, depth * kPanel};
  }
};

/// What the product is added to: nothing, C, or row[i] + column[j]. Added last: a large offset
/// would take bits from every partial sum.
enum class Plus : std::uint8_t { kNothing, kSelf, kOffsets };
struct Offsets {
  const float* row = nullptr;
  const float* column = nullptr;
};

inline constexpr std::int64_t kShortSum = 64;

template <int R, int V, Plus P>
inline void gemm_block(std::int64_t depth, Left a, const float* b, std::ptrdiff_t b_k, float* c,
                       std::ptrdiff_t ldc, Offsets offsets) {
  Vec sum[R][V] = {};
  bool parts = false;
  const float* a_rows[R];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) a_rows[r] = a.data + r * a.row;
  const auto accumulate = [&](std::int64_t count) {
    for (std::int64_t k = 0; k < count; ++k) {
      Vec line[V];
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) line[v] = load(b + v * kLanes);
      b += b_k;
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const Vec x = splat(*a_rows[r]);
        a_rows[r] += a.k;
#pragma GCC unroll 8
        for (int v = 0; v < V; ++v) sum[r][v] += x * line[v];
      }
    }
  };
  if constexpr (P == Plus::kOffsets) {
    // Exponents: sums of at most kShortSum terms, one after the other into C, halve the rounding.
    for (; depth > kShortSum; depth -= kShortSum) {
      accumulate(kShortSum);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
        for (int v = 0; v < V; ++v) {
          float* target = c + r * ldc + v * kLanes;
          store(target, parts ? load(target) + sum[r][v] : sum[r][v]);
          sum[r][v] = Vec{};
        }
      }
      parts = true;
    }
  }
  accumulate(depth);
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) {
      float* target = c + r * ldc + v * kLanes;
      if constexpr (P == Plus::kSelf) sum[r][v] += load(target);
      if constexpr (P == Plus::kOffsets) {
        if (parts) sum[r][v] += load(target);
        sum[r][v] = (sum[r][v] + load(offsets.column + v * kLanes)) + splat(offsets.row[r]);
      }
      store(target, sum[r][v]);
    }
  }
}

template <int V, Plus P>
inline void gemm_rows(std::int64_t rows, std::int64_t depth, Left a, const float* b,
                      std::ptrdiff_t b_k, float* c, std::ptrdiff_t ldc, Offsets offsets) {
  for (; rows >= kBlockRows; rows -= kBlockRows) {
    gemm_block<kBlockRows, V, P>(depth, a, b, b_k, c, ldc, offsets);
    a.data += kBlockRows * a.row;
    c += kBlockRows * ldc;
    offsets.row += P == Plus::kOffsets ? kBlockRows : 0;
  }
  switch (rows) {
    case 5:
      return gemm_block<5, V, P>(depth, a, b, b_k, c, ldc, offsets);
    case 4:
      return gemm_block<4, V, P>(depth, a, b, b_k, c, ldc, offsets);
    case 3:
      return gemm_block<3, V, P>(depth, a, b, b_k, c, ldc, offsets);
    case 2:
      return gemm_block<2, V, P>(depth, a, b, b_k, c, ldc, offsets);
    case 1:
      return gemm_block<1, V, P>(depth, a, b, b_k, c, ldc, offsets);
    default:
      return;
  }
}

/// N is a multiple of kLanes.
template <Plus P>
inline void gemm(std::int64_t rows, std::int64_t columns, std::int64_t depth, Left a, Right b,
                 float* c, std::ptrdiff_t ldc, Offsets offsets = {}) {
  for (std::int64_t n = 0; n < columns; n += kPanel) {
    const float* panel = b.data + n / kPanel * b.panel;
    const auto vectors = least<std::int64_t>(kPanelVectors, (columns - n) / kLanes);
    const Offsets at{offsets.row, P == Plus::kOffsets ? offsets.column + n : nullptr};
    if constexpr (kPanelVectors == 4) {
      if (vectors == 4) {
        gemm_rows<4, P>(rows, depth, a, panel, b.k, c + n, ldc, at);
        continue;
      }
      if (vectors == 3) {
        gemm_rows<3, P>(rows, depth, a, panel, b.k, c + n, ldc, at);
        continue;
      }
    }
    if (vectors == 2) {
      gemm_rows<2, P>(rows, depth, a, panel, b.k, c + n, ldc, at);
    } else {
      gemm_rows<1, P>(rows, depth, a, panel, b.k, c + n, ldc, at);
    }
  }
}

}  // namespace performer::kernels::PERFORMER_ISA
