#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "performer/cli/model_options.h"
#include "performer/infer/attention_maps.h"
#include "performer/infer/residue_attention.h"

/// `performer attention`: options, results and the files that they become.
namespace performer::cli {

struct AttentionOptions {
  ModelOptions model;
  std::string input, sequence, window;
  std::vector<std::int64_t> layers, heads;  // empty: all
  std::int64_t record = 1, tiles = 128, permutations = 9999;
  std::string page, maps, heads_table, residues, picture;
  bool exact = false, overwrite = false, json = false;
};

/// Tokens of the sequence from `begin` to before `end`.
struct TokenRange {
  std::int64_t begin = 0, end = 0;
};

struct AttentionResult {
  std::string model, id;
  std::vector<std::string> labels;  // of tokens: "M", "<bos>"
  std::int64_t tile = 1;            // tokens in a row of a tile
  bool causal = false;
  TokenRange window;
  std::vector<infer::LayerMaps> layers;               // in their order
  std::vector<std::vector<infer::HeadScore>> scores;  // of each layer's heads
  std::vector<std::int64_t> shown_heads;              // of every layer, for maps
  std::int64_t sequences = 0;                         // in the sums over residues
  std::optional<infer::Agreement> agreement;          // of models of proteins
  at::Tensor ratios;                                  // [20, 20], with it

  /// The tokens of a tile: [begin, end).
  TokenRange tile_range(std::int64_t tile) const;
};

std::string heads_text(const AttentionResult& result);
std::string maps_text(const AttentionResult& result);
std::string residues_text(const AttentionResult& result);
/// A PNG file: a row of tiles for each layer, a column for each head. kUsage where it is too large.
std::string grid_png(const AttentionResult& result);
std::string attention_page(const AttentionResult& result);
nlohmann::ordered_json attention_json(const AttentionResult& result);

}  // namespace performer::cli
