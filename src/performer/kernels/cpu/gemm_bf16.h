#pragma once

#include "performer/kernels/cpu/simd.h"

// C [M, N] float32 = sum over parts of A B, A and B bfloat16 in pairs along k (one pair a 32-bit
// word): A [M, K/2] row-major, B in panels [N / kPanel, K/2, kPanel]. By AMX tiles, or by the dot
// products of avx512_bf16. M, N and K are multiples of 32; accumulation is float32.
namespace performer::kernels::PERFORMER_ISA {

using Pair = std::uint32_t;

/// One product of a sum. A number kept as the sum of two bfloat16 makes two parts.
struct PairPart {
  const Pair* a;
  const Pair* b;
};

inline constexpr std::int64_t kPairPad = 32;

#if defined(PERFORMER_AMX)

/// Sets the tiles of this thread up for its lifetime: eight of 16 rows of 64 bytes.
class TileConfig {
 public:
  TileConfig() {
    alignas(64) unsigned char config[64] = {};
    config[0] = 1;
    for (int tile = 0; tile < 8; ++tile) {
      config[16 + 2 * tile] = 64;  // bytes a row
      config[48 + tile] = 16;      // rows
    }
    _tile_loadconfig(config);
  }
  ~TileConfig() { _tile_release(); }
  TileConfig(const TileConfig&) = delete;
  TileConfig& operator=(const TileConfig&) = delete;
};

template <bool Add>
inline void gemm_pairs(std::int64_t rows, std::int64_t columns, std::int64_t depth_pairs,
                       const PairPart* parts, int count, std::int64_t lda, float* c,
                       std::int64_t ldc) {
  const std::int64_t stride_a = lda * 4, stride_b = kPanel * 4, stride_c = ldc * 4;
  for (std::int64_t n = 0; n < columns; n += 32) {
    const auto at = n / kPanel * depth_pairs * kPanel + n % kPanel;
    for (std::int64_t m = 0; m < rows; m += 32) {
      float* target = c + m * ldc + n;
      if constexpr (Add) {
        _tile_loadd(0, target, stride_c);
        _tile_loadd(1, target + 16, stride_c);
        _tile_loadd(2, target + 16 * ldc, stride_c);
        _tile_loadd(3, target + 16 * ldc + 16, stride_c);
      } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
      }
      for (std::int64_t k = 0; k < depth_pairs; k += 16) {
        for (int part = 0; part < count; ++part) {
          // Loads are as dear as products: an operand that both parts share stays.
          const Pair* a = parts[part].a + m * lda + k;
          const Pair* b = parts[part].b + at + k * kPanel;
          if (part == 0 || parts[part].a != parts[0].a) {
            _tile_loadd(4, a, stride_a);
            _tile_loadd(5, a + 16 * lda, stride_a);
          }
          if (part == 0 || parts[part].b != parts[0].b) {
            _tile_loadd(6, b, stride_b);
            _tile_loadd(7, b + 16, stride_b);
          }
          _tile_dpbf16ps(0, 4, 6);
          _tile_dpbf16ps(2, 5, 6);
          _tile_dpbf16ps(1, 4, 7);
          _tile_dpbf16ps(3, 5, 7);
        }
      }
      _tile_stored(0, target, stride_c);
      _tile_stored(1, target + 16, stride_c);
      _tile_stored(2, target + 16 * ldc, stride_c);
      _tile_stored(3, target + 16 * ldc + 16, stride_c);
    }
  }
}

#else

struct TileConfig {
  TileConfig() {}
};

template <int R, int V, bool Add>
inline void pair_block(std::int64_t depth_pairs, const PairPart* parts, int count, std::int64_t at,
                       std::int64_t m, std::int64_t lda, float* c, std::int64_t ldc) {
  __m512 sum[R][V];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) sum[r][v] = Add ? load(c + r * ldc + v * kLanes) : Vec{};
  }
  for (int part = 0; part < count; ++part) {
    const Pair* a = parts[part].a + m * lda;
    const Pair* b = parts[part].b + at;
    for (std::int64_t k = 0; k < depth_pairs; ++k, b += kPanel) {
      __m512bh line[V];
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) line[v] = (__m512bh)_mm512_loadu_si512(b + v * kLanes);  // NOLINT
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const auto x = (__m512bh)_mm512_set1_epi32(static_cast<int>(a[r * lda + k]));  // NOLINT
#pragma GCC unroll 8
        for (int v = 0; v < V; ++v) sum[r][v] = _mm512_dpbf16_ps(sum[r][v], x, line[v]);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) store(c + r * ldc + v * kLanes, sum[r][v]);
  }
}

template <int V, bool Add>
inline void pair_rows(std::int64_t rows, std::int64_t depth_pairs, const PairPart* parts, int count,
                      std::int64_t at, std::int64_t lda, float* c, std::int64_t ldc) {
  std::int64_t m = 0;
  for (; m + kBlockRows <= rows; m += kBlockRows) {
    pair_block<kBlockRows, V, Add>(depth_pairs, parts, count, at, m, lda, c + m * ldc, ldc);
  }
  for (; m < rows; m += 2) {  // rows are a multiple of 32
    pair_block<2, V, Add>(depth_pairs, parts, count, at, m, lda, c + m * ldc, ldc);
  }
}

template <bool Add>
inline void gemm_pairs(std::int64_t rows, std::int64_t columns, std::int64_t depth_pairs,
                       const PairPart* parts, int count, std::int64_t lda, float* c,
                       std::int64_t ldc) {
  for (std::int64_t n = 0; n < columns; n += kPanel) {
    const auto at = n * depth_pairs;
    if (columns - n >= kPanel) {
      pair_rows<4, Add>(rows, depth_pairs, parts, count, at, lda, c + n, ldc);
    } else {
      pair_rows<2, Add>(rows, depth_pairs, parts, count, at, lda, c + n, ldc);
    }
  }
}

#endif

/// Rounded to bfloat16 (halves upwards), as a float; NaN stays NaN.
inline Vec round_pair(Vec x) {
  const __m512i bits = _mm512_add_epi32(_mm512_castps_si512(x), _mm512_set1_epi32(0x8000));
  const Vec rounded = _mm512_castsi512_ps(_mm512_and_si512(bits, _mm512_set1_epi32(-65536)));
  return _mm512_mask_mov_ps(x, _mm512_cmp_ps_mask(x, x, _CMP_ORD_Q), rounded);
}

/// The upper halves of 32 floats that were rounded: one row of pairs.
inline void store_row_pairs(Pair* to, Vec low, Vec high) {
  alignas(64) static constexpr std::uint16_t kUpper[32] = {
      1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31,
      33, 35, 37, 39, 41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63};
  const __m512i index = _mm512_load_si512(kUpper);
  _mm512_storeu_si512(
      to, _mm512_permutex2var_epi16(_mm512_castps_si512(low), index, _mm512_castps_si512(high)));
}

/// Pairs (first, second) of two rows of rounded floats.
inline __m512i pair_words(Vec first, Vec second) {
  return _mm512_or_si512(_mm512_srli_epi32(_mm512_castps_si512(first), 16),
                         _mm512_castps_si512(second));
}

/// 16 x 16 words, transposed.
inline void transpose_words(const Pair* from, std::int64_t from_stride, Pair* to,
                            std::int64_t to_stride) {
  __m512i a[16], b[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) a[i] = _mm512_loadu_si512(from + i * from_stride);
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    b[i] = _mm512_unpacklo_epi32(a[i], a[i + 1]);
    b[i + 1] = _mm512_unpackhi_epi32(a[i], a[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {  // a[i + j]: column j + 4 lane of rows i ... i + 3
    a[i] = _mm512_unpacklo_epi64(b[i], b[i + 2]);
    a[i + 1] = _mm512_unpackhi_epi64(b[i], b[i + 2]);
    a[i + 2] = _mm512_unpacklo_epi64(b[i + 1], b[i + 3]);
    a[i + 3] = _mm512_unpackhi_epi64(b[i + 1], b[i + 3]);
  }
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    b[j] = _mm512_shuffle_i32x4(a[j], a[4 + j], 0x88);
    b[4 + j] = _mm512_shuffle_i32x4(a[j], a[4 + j], 0xDD);
    b[8 + j] = _mm512_shuffle_i32x4(a[8 + j], a[12 + j], 0x88);
    b[12 + j] = _mm512_shuffle_i32x4(a[8 + j], a[12 + j], 0xDD);
  }
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    _mm512_storeu_si512(to + j * to_stride, _mm512_shuffle_i32x4(b[j], b[8 + j], 0x88));
    _mm512_storeu_si512(to + (8 + j) * to_stride, _mm512_shuffle_i32x4(b[j], b[8 + j], 0xDD));
    _mm512_storeu_si512(to + (4 + j) * to_stride, _mm512_shuffle_i32x4(b[4 + j], b[12 + j], 0x88));
    _mm512_storeu_si512(to + (12 + j) * to_stride, _mm512_shuffle_i32x4(b[4 + j], b[12 + j], 0xDD));
  }
}

/// Sixteen vectors to reduce at once: lane i of the result is that of vector i.
class LaneReduction {
 public:
  void set(std::int64_t i, Vec v) { store(rows_ + i * kLanes, v); }
  Vec sum() const {
    transpose();
    Vec total = load(columns_);
    for (int i = 1; i < kLanes; ++i) total += load(columns_ + i * kLanes);
    return total;
  }
  Vec max() const {
    transpose();
    Vec top = load(columns_);
    for (int i = 1; i < kLanes; ++i) {
      top = kernels::PERFORMER_ISA::max(load(columns_ + i * kLanes), top);
    }
    return top;
  }

 private:
  void transpose() const {
    transpose_words(reinterpret_cast<const Pair*>(rows_), kLanes, reinterpret_cast<Pair*>(columns_),
                    kLanes);
  }
  alignas(64) float rows_[kLanes * kLanes];
  alignas(64) mutable float columns_[kLanes * kLanes];
};

}  // namespace performer::kernels::PERFORMER_ISA
