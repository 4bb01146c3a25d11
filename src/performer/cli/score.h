#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "performer/cli/model_options.h"
#include "performer/cli/row_work.h"
#include "performer/infer/score.h"

/// `performer score`: options, and what its three tables have in common.
namespace performer::cli {

struct ScoreOptions {
  ModelOptions model;
  std::string input, output, mutations, method;  // method: empty: what suits the model
  std::int64_t offset = 1, batch_tokens = 16384;
  bool scan = false, overwrite = false, restart = false, json = false;
};

/// What is scored.
struct ScoreInput {
  const data::WholeSequences& sequences;
  const data::TokenSpace& space;
  infer::ScoreMethod method;
  bool causal;
  std::int64_t offset;
  std::string name;  // of the file

  /// Rows of a sequence as a whole: one for each residue, or one.
  infer::Readings::Range add_whole(infer::Readings& readings, std::int64_t sequence,
                                   std::int64_t variant = infer::Readings::kNone) const;
  /// Of the `i`-th residue, which stands at `place`: its place among the numbers of an unmasked row.
  std::int64_t unmasked_index(std::int64_t place, std::int64_t i) const {
    return causal ? place - 1 : i;
  }
};

/// Log p of what is there, in all rows of a range together.
struct Likelihood {
  double sum = 0;
  std::int64_t targets = 0;
};
Likelihood likelihood_of(const RowWork& work, const infer::Readings::Range& rows);

/// A table: which rows the model reads for it, and its lines from their numbers.
class ScoreTable {
 public:
  virtual ~ScoreTable() = default;
  /// Tokens that rows are asked for beside what is there.
  virtual std::vector<std::int64_t> letters() const { return {}; }
  virtual void plan(infer::Readings& readings) = 0;
  /// What results depend on beside model, sequences and method.
  virtual nlohmann::ordered_json identity() const = 0;
  using Take = std::function<void(std::string_view text)>;
  virtual void write(const RowWork& work, const Take& take) = 0;
  /// What --json shows of it after write().
  virtual nlohmann::ordered_json facts() const = 0;

 protected:
  ScoreTable() = default;
  ScoreTable(const ScoreTable&) = default;
  ScoreTable& operator=(const ScoreTable&) = default;
};

/// sequence, id, residues, targets, log_likelihood, perplexity
std::unique_ptr<ScoreTable> score_sequences(const ScoreInput& input);
/// sequence, id, mutant, score: log p(mutant) - log p(wild type)
std::unique_ptr<ScoreTable> score_mutations(const ScoreInput& input, const std::string& path);
/// sequence, id, position, residue, and the score of each of the 20 residues at that position
std::unique_ptr<ScoreTable> score_scan(const ScoreInput& input);

}  // namespace performer::cli
