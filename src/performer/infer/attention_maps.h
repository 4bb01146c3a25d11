#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "performer/models/transformer.h"

/// What the heads of a model attend to in one sequence, for people and other programs.
namespace performer::infer {

struct MapOptions {
  std::vector<std::int64_t> layers;               // which ones; 0 is the first
  std::int64_t tiles = 128;                       // most rows and columns of a pooled map
  std::int64_t window_begin = 0, window_end = 0;  // tokens to show one by one: [begin, end)
  bool exact = false;                             // softmax of the same queries and keys, too
  at::Tensor kinds;                               // int64 [L]: a kind of each token, -1: none
  std::int64_t num_kinds = 0;
};

/// Of one layer of L tokens, float32 on the CPU; T = ceil(L / tile_size).
struct LayerMaps {
  std::int64_t layer = 0;
  at::Tensor tiles;         // [H, T, T]: the mean over a tile's rows of the sum over its columns,
                            // so that rows of tiles sum to 1 as rows of tokens do
  at::Tensor window;        // [H, W, W]: token by token; undefined without a window
  at::Tensor exact_tiles;   // the same of exact softmax: undefined unless asked for, and for
  at::Tensor exact_window;  // attention without queries
  at::Tensor by_kind;       // [H, K, K] float64: the sum over tokens of a kind of the weights that
                            // they give to those of another; undefined without kinds
};

/// Tokens in a row of a tile.
std::int64_t tile_size(std::int64_t length, std::int64_t tiles);

/// Reads `tokens` (int64 [1, L]) once and hands over layer after layer, in their order. A layer's
/// own attention is asked for its weights by values that are one-hot (paper, Appendix C), a block of
/// columns at a time: what the model does, whatever its kind. O(L (M' + E) T) time for FAVOR+, and
/// O(L (E + T)) memory: no L x L tensor for any kind.
void map_attention(models::Transformer& model, const at::Tensor& tokens, const MapOptions& options,
                   const std::function<void(const LayerMaps& maps)>& take);

/// How far a head is from plain averaging, in [-1, 1] and [0, 1].
struct HeadScore {
  double diagonal = 0;  // weight on the same and the neighbouring tiles, less what averaging gives
  double vertical = 0;  // weight that would have to move for every column to be seen as averaging
                        // sees it
};

/// Of each head of `tiles`, [H, T, T], for `length` tokens.
std::vector<HeadScore> head_scores(const at::Tensor& tiles, std::int64_t length, bool causal);

/// Tiles of plain averaging: float64 [T, T].
at::Tensor uniform_tiles(std::int64_t length, std::int64_t tiles, bool causal);

}  // namespace performer::infer
