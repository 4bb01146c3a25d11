#include <fmt/format.h>

#include <cmath>

#include "performer/cli/score.h"
#include "performer/cli/sequence_table.h"

namespace performer::cli {
namespace {

double perplexity(const Likelihood& found) {
  return std::exp(-found.sum / static_cast<double>(found.targets));
}

class SequenceScores final : public ScoreTable {
 public:
  explicit SequenceScores(const ScoreInput& input) : input_(input) {}

  void plan(infer::Readings& readings) override {
    for (std::int64_t i = 0; i < input_.sequences.count(); ++i) {
      rows_.push_back(input_.add_whole(readings, i));
    }
  }

  nlohmann::ordered_json identity() const override { return "sequences"; }

  void write(const RowWork& work, const Take& take) override {
    take("sequence\tid\tresidues\ttargets\tlog_likelihood\tperplexity\n");
    for (std::int64_t i = 0; i < input_.sequences.count(); ++i) {
      const auto found = likelihood_of(work, rows_[static_cast<std::size_t>(i)]);
      all_.sum += found.sum;
      all_.targets += found.targets;
      take(fmt::format("{}\t{}\t{}\t{}\t{:.6f}\t{:.6f}\n", i + 1,
                       escaped_field(input_.sequences.id(i)), input_.sequences.residues(i),
                       found.targets, found.sum, perplexity(found)));
    }
  }

  nlohmann::ordered_json facts() const override {
    return {
        {"targets", all_.targets}, {"log_likelihood", all_.sum}, {"perplexity", perplexity(all_)}};
  }

 private:
  ScoreInput input_;
  std::vector<infer::Readings::Range> rows_;
  Likelihood all_;
};

}  // namespace

std::unique_ptr<ScoreTable> score_sequences(const ScoreInput& input) {
  return std::make_unique<SequenceScores>(input);
}

}  // namespace performer::cli
