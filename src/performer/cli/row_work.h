#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "performer/core/row_journal.h"

namespace performer::cli {

/// How rows of numbers come about: batch after batch of at most `batch_tokens` tokens, and where
/// they end up.
struct RowWorkOptions {
  std::string command;  // for progress
  std::string output;   // their journal is OUTPUT.partial; empty: they are kept in memory
  std::int64_t batch_tokens = 16384;
  bool restart = false;
};

/// Numbers for each of many rows, made in batches by rows of about the same length. With an output
/// file a command that was killed finds what it had made, and makes the rest as it would have.
class RowWork {
 public:
  /// `lengths`: tokens of each row; `identity` as RowJournal has it.
  RowWork(RowWorkOptions options, const nlohmann::ordered_json& identity,
          std::vector<std::int64_t> lengths);

  using Take = std::function<void(std::int64_t row, std::span<const float> numbers)>;
  using MakeBatch = std::function<void(std::span<const std::int64_t> batch, const Take& take)>;
  /// Makes what is not there. Rows may be made twice; the first numbers stay.
  void compute(const MakeBatch& make);

  /// Of a row that was made.
  std::vector<float> read(std::int64_t row) const;
  std::int64_t count(std::int64_t row) const;

  std::int64_t from_before() const { return from_before_; }
  double seconds() const { return seconds_; }
  double tokens_per_second() const;

  /// Takes the journal away: its rows are where they belong.
  void finish();

 private:
  bool has(std::int64_t row) const;
  void add(std::int64_t row, std::span<const float> numbers);

  RowWorkOptions options_;
  std::vector<std::int64_t> lengths_;
  std::optional<RowJournal> journal_;
  std::vector<std::optional<std::vector<float>>> kept_;  // without a journal
  std::int64_t done_ = 0, from_before_ = 0, made_tokens_ = 0;
  double seconds_ = 0;
};

}  // namespace performer::cli
