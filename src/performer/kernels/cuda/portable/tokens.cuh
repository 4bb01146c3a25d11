#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "performer/kernels/cuda/common/maps.cuh"
#include "performer/kernels/cuda/common/problem.h"
#include "performer/kernels/cuda/portable/tile.cuh"

// Tiles of 64 tokens between global memory of any dtype and strides and float32 shared memory.
namespace performer::kernels::cuda::portable {

/// Tokens [begin, begin + length) of sequence n lie in batch entry `batch`.
struct Span {
  std::int64_t batch, begin, length;
};

/// Packed offsets come from the device unchecked: whatever they hold, a span lies in [0, total).
__device__ __forceinline__ Span make_span(const std::int64_t* offsets, std::int64_t n,
                                          std::int64_t total) {
  if (offsets == nullptr) return {n, 0, total};
  const auto clamp = [](std::int64_t x, std::int64_t low, std::int64_t high) {
    return x < low ? low : (x > high ? high : x);
  };
  const std::int64_t begin = clamp(offsets[n], 0, total);
  return {0, begin, clamp(offsets[n + 1], begin, total) - begin};
}
__device__ __forceinline__ Span query_span(const FavorProblem& p, std::int64_t n) {
  return make_span(p.query_offsets, n, p.query_length);
}
__device__ __forceinline__ Span key_span(const FavorProblem& p, std::int64_t n) {
  return make_span(p.key_offsets, n, p.key_length);
}

/// The head of a parameter or key tensor with `of` heads that head h of `heads` reads.
__device__ __forceinline__ std::int64_t head_of(std::int64_t h, std::int64_t heads,
                                                std::int64_t of) {
  return h / (heads / of);
}

/// Splits cut a sequence at multiples of 64 tokens, into numbers of tiles that differ by one at
/// most: split s of `splits` has the tokens [split_begin(s), split_begin(s + 1)).
__host__ __device__ inline std::int64_t split_begin(std::int64_t length, std::int64_t split,
                                                    std::int64_t splits) {
  const std::int64_t tiles = (length + kTile - 1) / kTile;
  const std::int64_t begin = tiles * split / splits * kTile;
  return begin < length ? begin : length;
}

/// Up to 64 rows (tokens) of one head. Element (row, column) is data[row * token + column *
/// element].
struct Rows {
  const void* data;  // of row 0, column 0
  std::int64_t token, element;
  int count;  // rows that are there; the others read as 0
  int width;  // columns that are there
  Dtype dtype;
  bool vectors;  // 4 columns are one aligned load or store
};

/// x, of which the compiler knows nothing: offsets made of it are not computed ahead of a loop,
/// where they would fill registers.
__device__ __forceinline__ int opaque(int x) {
  asm volatile("" : "+r"(x));
  return x;
}

__device__ __forceinline__ int bytes_of(Dtype dtype) { return dtype == Dtype::kFloat ? 4 : 2; }

/// Rows from token `first` (of the batch entry, not of the sequence) on. `left`: tokens from there
/// to the end of the sequence or split.
__device__ __forceinline__ Rows rows_of(const TokenView& view, Dtype dtype, std::int64_t batch,
                                        std::int64_t head, std::int64_t first, std::int64_t left,
                                        std::int64_t width) {
  const int bytes = bytes_of(dtype);
  const std::int64_t offset = batch * view.batch + head * view.head + first * view.token;
  const char* data = static_cast<const char*>(view.data) + offset * bytes;
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  const bool vectors = view.element == 1 && width % 4 == 0 && view.token % 4 == 0 &&
                       address % static_cast<unsigned>(4 * bytes) == 0;
  return {data,
          view.token,
          view.element,
          static_cast<int>(left < 2 * kTile ? (left < 0 ? 0 : left) : 2 * kTile),
          static_cast<int>(width),
          dtype,
          vectors};
}

/// The rows from `row` on.
__device__ __forceinline__ Rows skip_rows(Rows rows, int row) {
  rows.data = static_cast<const char*>(rows.data) + row * rows.token * bytes_of(rows.dtype);
  rows.count = rows.count > row ? rows.count - row : 0;
  return rows;
}

__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ __forceinline__ float to_float(__half x) { return __half2float(x); }

/// Four floats of memory, and four 16-bit numbers.
__device__ __forceinline__ float4 load4(const float* p) {
  return *reinterpret_cast<const float4*>(p);
}
template <class T>
__device__ __forceinline__ float4 load4(const T* p) {
  const uint2 raw = *reinterpret_cast<const uint2*>(p);
  const T* x = reinterpret_cast<const T*>(&raw);
  return make_float4(to_float(x[0]), to_float(x[1]), to_float(x[2]), to_float(x[3]));
}

/// fetch(row, column): columns column..+3 of a row, or zeros.
template <class T, class Live>
struct VectorFetch {
  const Rows& rows;
  const Live& live;
  __device__ __forceinline__ float4 operator()(int row, int column) const {
    if (row >= rows.count || column >= rows.width || !live(row)) return make_float4(0, 0, 0, 0);
    return load4(static_cast<const T*>(rows.data) + row * rows.token + column);
  }
};
template <class Live>
struct ScalarFetch {
  const Rows& rows;
  const Live& live;
  __device__ __forceinline__ float at(std::int64_t i) const {
    switch (rows.dtype) {
      case Dtype::kBfloat16:
        return to_float(static_cast<const __nv_bfloat16*>(rows.data)[i]);
      case Dtype::kHalf:
        return to_float(static_cast<const __half*>(rows.data)[i]);
      default:
        return static_cast<const float*>(rows.data)[i];
    }
  }
  __device__ __forceinline__ float4 operator()(int row, int column) const {
    float x[4] = {0, 0, 0, 0};
    if (row < rows.count && live(row)) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (column + i < rows.width) {
          x[i] = at(row * rows.token + (column + i) * rows.element);
        }
      }
    }
    return make_float4(x[0], x[1], x[2], x[3]);
  }
};

/// tile[row][column] of 64 rows and the columns column..column + 63, through fetch(row, column).
template <class Fetch>
__device__ __forceinline__ void fill_rows(float* tile, int column, const Fetch& fetch) {
  const int thread = opaque(static_cast<int>(threadIdx.x));
  const int row = thread / 16, group = 4 * (thread % 16);
  float4 x[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) x[i] = fetch(row + 16 * i, column + group);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    *reinterpret_cast<float4*>(tile + (row + 16 * i) * kStride + group) = x[i];
  }
}

/// tile[column][row], the same. A warp reads 16 rows by 8 columns: whole sectors of float32, and
/// stores to 32 banks.
template <class Fetch>
__device__ __forceinline__ void fill_columns(float* tile, int column, const Fetch& fetch) {
  const int thread = opaque(static_cast<int>(threadIdx.x));
  const int row = thread % 16, group = 4 * (thread / 16);
  float4 x[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) x[i] = fetch(row + 16 * i, column + group);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    float* to = tile + group * kStride + row + 16 * i;
    to[0] = x[i].x, to[kStride] = x[i].y, to[2 * kStride] = x[i].z, to[3 * kStride] = x[i].w;
  }
}

/// Calls body(fetch) with the fetch that suits the rows.
template <class Live, class Body>
__device__ __forceinline__ void with_fetch(const Rows& rows, const Live& live, const Body& body) {
  if (!rows.vectors) {
    body(ScalarFetch<Live>{rows, live});
  } else if (rows.dtype == Dtype::kFloat) {
    body(VectorFetch<float, Live>{rows, live});
  } else if (rows.dtype == Dtype::kBfloat16) {
    body(VectorFetch<__nv_bfloat16, Live>{rows, live});
  } else {
    body(VectorFetch<__half, Live>{rows, live});
  }
}

struct AllLive {
  __device__ __forceinline__ bool operator()(int) const { return true; }
};

/// tile[token][column - first column]: 64 columns from `column` on; zeros where live(row) is false,
/// beyond the rows and beyond the columns. No synchronisation.
template <class Live = AllLive>
__device__ __forceinline__ void load_rows(float* tile, const Rows& rows, int column,
                                          const Live& live = {}) {
  with_fetch(rows, live, [&](const auto& fetch) { fill_rows(tile, column, fetch); });
}

/// tile[column - first column][token], the same.
template <class Live = AllLive>
__device__ __forceinline__ void load_columns(float* tile, const Rows& rows, int column,
                                             const Live& live = {}) {
  with_fetch(rows, live, [&](const auto& fetch) { fill_columns(tile, column, fetch); });
}

/// Columns column..+3 of a row.
__device__ __forceinline__ void store_row4(const Rows& rows, int row, int column, const float* x) {
  if (row >= rows.count || column >= rows.width) return;
  const std::int64_t at = row * rows.token + column * rows.element;
  // Rows of results are made by rows_of, like all others: their memory is writable.
  void* data = const_cast<void*>(rows.data);
  const auto store = [&](auto* to, auto convert) {
    for (int i = 0; i < 4 && column + i < rows.width; ++i)
      to[at + i * rows.element] = convert(x[i]);
  };
  if (rows.dtype == Dtype::kFloat) {
    auto* to = static_cast<float*>(data);
    if (rows.vectors) {
      *reinterpret_cast<float4*>(to + at) = make_float4(x[0], x[1], x[2], x[3]);
    } else {
      store(to, [](float y) { return y; });
    }
  } else if (rows.dtype == Dtype::kBfloat16) {
    auto* to = static_cast<__nv_bfloat16*>(data);
    if (rows.vectors) {
      const __nv_bfloat162 pair[2] = {__floats2bfloat162_rn(x[0], x[1]),
                                      __floats2bfloat162_rn(x[2], x[3])};
      *reinterpret_cast<uint2*>(to + at) = *reinterpret_cast<const uint2*>(pair);
    } else {
      store(to, [](float y) { return __float2bfloat16_rn(y); });
    }
  } else {
    auto* to = static_cast<__half*>(data);
    if (rows.vectors) {
      const __half2 pair[2] = {__floats2half2_rn(x[0], x[1]), __floats2half2_rn(x[2], x[3])};
      *reinterpret_cast<uint2*>(to + at) = *reinterpret_cast<const uint2*>(pair);
    } else {
      store(to, [](float y) { return __float2half_rn(y); });
    }
  }
}

/// The block's result, rows of tokens: column `column` is that of the result's column 0.
template <int R>
__device__ __forceinline__ void store_tokens(const Rows& rows, int column,
                                             const float (&acc)[R][4]) {
#pragma unroll
  for (int i = 0; i < R; ++i) store_row4(rows, row_of(i), column + col0(), acc[i]);
}

/// Which keys of a head are there, and what each adds to its log2 features.
struct KeyTerms {
  const bool* mask;   // null: all
  const float* bias;  // null: 0
  std::int64_t mask_token, bias_token;
  float half_norm;

  /// Tokens from `first` (of the batch entry) on.
  __device__ KeyTerms(const Problem& p, std::int64_t state_head, std::int64_t batch,
                      std::int64_t first)
      : mask(p.key_mask),
        bias(p.key_bias),
        mask_token(p.mask_token),
        bias_token(p.key_bias_token),
        half_norm(p.half_norm) {
    if (mask != nullptr) mask += batch * p.mask_batch + first * mask_token;
    if (bias != nullptr) {
      const std::int64_t head = head_of(state_head, p.state_heads, p.key_bias_heads);
      bias += batch * p.key_bias_batch + head * p.key_bias_head + first * bias_token;
    }
  }

  /// For rows below the tile's count alone.
  __device__ __forceinline__ bool live(int row) const {
    return (mask == nullptr || mask[row * mask_token]) &&
           (bias == nullptr || bias[row * bias_token] != -infinity());
  }
  __device__ __forceinline__ bool operator()(int row) const { return live(row); }

  __device__ __forceinline__ float term(int row, float square) const {
    const float own = bias == nullptr ? 0 : bias[row * bias_token] * static_cast<float>(kLog2E);
    return fmaf(half_norm, square, own);
  }
};

/// Squares of the columns (tokens) of tile[dim][token], added over the calls for all blocks of 64
/// dims: thread t keeps that of token t / 4, and all four threads of a token get the total.
__device__ __forceinline__ float add_squares(const float* tile, float square) {
  const int thread = opaque(static_cast<int>(threadIdx.x));
  const int token = thread / 4, quarter = thread % 4;
  float own = 0;
#pragma unroll
  for (int i = quarter; i < kTile; i += 4) {
    const float x = tile[i * kStride + token];
    own = fmaf(x, x, own);
  }
  own += __shfl_xor_sync(0xffffffffU, own, 1);
  own += __shfl_xor_sync(0xffffffffU, own, 2);
  return square + own;
}

/// terms[token] of the 64 keys of a tile, from the squares of add_squares (0 where keys carry no
/// norm): what a key adds to its log2 features, -inf where it is masked or beyond the end. Returns
/// whether the thread's own key is there. Exponential and other maps alike: terms of present keys
/// are 0 for the latter.
__device__ __forceinline__ bool store_terms(float* terms, const KeyTerms& keys, int count,
                                            float square) {
  const int token = static_cast<int>(threadIdx.x) / 4;
  const bool live = token < count && keys.live(token);
  if (threadIdx.x % 4 == 0) terms[token] = live ? keys.term(token, square) : -infinity();
  return live;
}

}  // namespace performer::kernels::cuda::portable
