#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "performer/ops/backends/composed/features.h"
#include "performer/ops/backends/composed/heads.h"
#include "performer/ops/backends/composed/scaled_sum.h"
#include "performer/ops/favor/arguments.h"

namespace performer::composed {

/// Consecutive tokens.
struct Block {
  std::int64_t start, length;
};
std::vector<Block> split_blocks(std::int64_t total, std::int64_t length);

/// A block of keys: features, [v, 1] and scales. Masked keys are selected away, not multiplied by
/// 0.
struct KeyBlock {
  FeatureBlock features;  // [B, Hs, C, M']
  Tensor values;          // [B, Hs, C, Dv + 1], the last column 1
  Tensor mask;            // bool [B, 1|Hs, C], undefined: all real
  Tensor bias;            // [B, 1|Hs, C] key_bias, 0 where masked; undefined: 0
  Tensor log2;            // [B, Hs, C, 1|M'] integer scales, kEmptyLog2Scale where masked
};

/// One call on dense sequences, resolved: options, heads and blocks of tokens in the accumulator's
/// type.
struct DenseCall {
  explicit DenseCall(const FavorArgs& args);

  FavorArgs args;
  Heads heads;
  FeatureSide query, key;
  at::ScalarType dtype;       // of all arithmetic
  std::int64_t num_features;  // M'
  std::int64_t value_dim;     // Dv
  double map_constant;        // product of the two 1/sqrt constants of the paper's phi

  std::int64_t query_length() const { return args.q.size(2); }
  std::int64_t key_length() const { return args.k.size(2); }
  /// Tokens per block of a bidirectional pass: a function of shapes alone, bounds the memory of
  /// features.
  std::int64_t block_length() const;

  FeatureBlock load_queries(Block block) const;  // [B, Hs, G, C, M']
  KeyBlock load_keys(Block block) const;
  ScaledSum initial_sum() const;  // [B, Hs, M', Dv + 1]
};

/// sum_j phi(k_j) [v_j, 1] of one block.
ScaledSum sum_keys(const KeyBlock& keys);

}  // namespace performer::composed
