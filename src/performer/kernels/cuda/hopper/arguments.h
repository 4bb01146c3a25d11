#pragma once

#include <cuda.h>

#include <cstdint>

#include "performer/kernels/params.h"
#include "performer/kernels/scales.h"

// What the kernels of this folder are handed. "Item" is one (sequence, head).
namespace performer::kernels::cuda::hopper {

/// 16-bit tokens [batch, heads, tokens, dim]; strides in elements.
struct Source {
  const std::uint16_t* data = nullptr;
  std::int64_t batch = 0, head = 0, token = 0, element = 1;
};

struct Target {
  std::uint16_t* data = nullptr;
  std::int64_t batch = 0, head = 0, token = 0, element = 1;
  bool vector = true;  // rows are contiguous, their chunks of 16 bytes aligned
};

/// The projection, packed once a call (pack.cu). Slices of 64 features, zeros beyond the last.
struct Projection {
  // [heads, slices] Tile<d> of W' = log2(e) sqrt(scale) W, the sum of two numbers of the tokens'
  // type. Rounded to one, W would move the features of long tokens further than rounding those.
  const std::uint16_t *high = nullptr, *low = nullptr;
  const std::uint16_t* plain = nullptr;  // the same of sqrt(scale) W in bfloat16 (backward alone)
  const float* bias = nullptr;  // [heads, 64 slices] in log2 units; -inf beyond the last feature
  int heads = 1;
  const float* norm = nullptr;  // [heads, 64 slices] |W'| of each feature (causal alone)
};

/// Tokens to project and what goes with them.
struct Tokens {
  CUtensorMap x_map, y_map;
  bool mapped = false;      // the maps hold x and y; else their elements are gathered
  Source x, y, o;           // k, v, - or q, -, - or q, grad_out, out
  bool vector = true;       // rows of o are contiguous, their chunks of 16 bytes aligned
  bool half = false;        // float16, else bfloat16
  std::int64_t length = 0;  // tokens of a sequence
  int heads = 1;            // of the items
  int x_heads = 1, y_heads = 1;
  // keys
  const bool* mask = nullptr;
  std::int64_t mask_batch = 0, mask_token = 0;
  const float* bias = nullptr;
  int bias_heads = 1;
  std::int64_t bias_batch = 0, bias_head = 0, bias_token = 0;
  float norm = 0;  // times |k|^2, in log2 units
  // rows
  const float* row_sum = nullptr;
  const std::int32_t* row_log2 = nullptr;
  const float* along = nullptr;  // [items, length] grad_out . out
};

}  // namespace performer::kernels::cuda::hopper
