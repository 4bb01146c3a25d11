#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "performer/core/config.h"
#include "performer/data/path_list.h"

namespace performer::data {

inline constexpr std::int64_t kMaxLength = std::int64_t{1} << 31;   // tokens of a row
inline constexpr std::int64_t kMaxSymbols = std::int64_t{1} << 14;  // of the recall task

/// What a model is trained and evaluated on: .fasta[.gz] or `-` (FASTA on standard input), .pds
/// (made by `performer data build`), .txt[.gz], .tsv[.gz], an idx file [.gz], or a folder of PNG
/// and PPM images. A split may name several, folders of them, and patterns.
struct DataConfig {
  std::string task = "protein";
  PathList train;
  PathList valid;
  PathList test;
  PathList ood;
  std::string split_table;
  std::int64_t length = 1024;
  std::int64_t pad_multiple = 128;
  bool join = false;
  std::string objective = "causal";
  double mask_probability = 0.15;
  std::string tokenizer = "bytes";
  bool deduplicate = false;
  std::string text_column = "text";
  std::string label_column = "label";
  std::string a_column = "a";
  std::string b_column = "b";
  std::string documents;
  std::string recall_form = "joint";
  std::int64_t recall_pairs = 8;
  std::int64_t recall_queries = 8;
  std::int64_t recall_keys = 16;
  std::int64_t recall_values = 16;
  std::int64_t recall_samples = 100'000;
  std::int64_t seed = 0;
};

template <class Config, class Visitor>
requires std::is_same_v<std::remove_const_t<Config>, DataConfig>
void visit_fields(Config& c, Visitor&& field) {
  field("task", c.task, "What the rows are.",
        {"protein", "text", "pixels", "recall", "classify", "match"});
  field("train", c.train.items, "Training data: files, folders, patterns such as \"x*.fa.gz\".");
  field("valid", c.valid.items, "Validation data; empty: rows of `train` that are marked so.");
  field("test", c.test.items, "Test data; empty: rows of `train` that are marked so.");
  field("ood", c.ood.items, "Out-of-distribution data; empty: rows of `train` that are marked so.");
  field("split_table", c.split_table,
        "TSV with columns id and split that marks the sequences of a FASTA file.");
  field("length", c.length, "Tokens in a row at most.", Range{1, kMaxLength},
        Aliases{"seq_len", "context_length", "block_size"});
  field("pad_multiple", c.pad_multiple,
        "A batch is as long as its longest row, rounded up to this; 0: always `length`.",
        Range{0, kMaxLength});
  field("join", c.join, "Proteins joined by EOS and cut into rows of `length`.");
  field("objective", c.objective, "Next token, or masked tokens.", {"causal", "masked"});
  field("mask_probability", c.mask_probability, "Share of the tokens that are predicted.");
  field("tokenizer", c.tokenizer, "`bytes`, or the path of a SentencePiece model.");
  field("deduplicate", c.deduplicate, "Drop sequences seen before in the files of the split.");
  field("text_column", c.text_column, "classify: the column of the text.");
  field("label_column", c.label_column, "classify and match: the column of the class.");
  field("a_column", c.a_column, "match: the column of the first document.");
  field("b_column", c.b_column, "match: the column of the second document.");
  field("documents", c.documents,
        "match: TSV with columns id and `text_column`; a and b are then ids.");
  field(
      "recall_form", c.recall_form,
      "recall: a pair is one token (one layer of attention can solve it), or key and value are two "
      "(two layers, slowly).",
      {"joint", "separate"});
  field("recall_pairs", c.recall_pairs, "recall: key-value pairs in a row.", Range{1, kMaxSymbols});
  field("recall_queries", c.recall_queries, "recall: keys asked for in a row.",
        Range{1, kMaxSymbols});
  field("recall_keys", c.recall_keys, "recall: different keys.", Range{1, kMaxSymbols});
  field("recall_values", c.recall_values, "recall: different values.", Range{2, kMaxSymbols});
  field("recall_samples", c.recall_samples, "recall: rows in an epoch; other splits a hundredth.",
        Range{1, std::int64_t{1} << 40});
  field("seed", c.seed, "Order of the rows, crops, masks and synthetic rows.");
}

/// Throws Error(kUsage) naming the key that is out of range, or where no data are named.
void check(const DataConfig& config);
/// The same, where there may be no data.
void check_values(const DataConfig& config);

/// Tokens in a row of the recall task.
std::int64_t recall_length(const DataConfig& config);

enum class Split : std::uint8_t { kTrain, kValid, kTest, kOod };

/// train, valid, test or ood.
const char* name_of(Split split);

/// Nothing for another name.
std::optional<Split> find_split(std::string_view name);

/// kUsage for another name.
Split split_of(const std::string& name);

/// The paths of a split as written in the configuration; may be empty.
const PathList& paths_of(const DataConfig& config, Split split);

}  // namespace performer::data
