#include <fmt/format.h>

#include "performer/cli/score.h"
#include "performer/cli/sequence_table.h"
#include "performer/core/error.h"
#include "performer/infer/mutation.h"

namespace performer::cli {
namespace {

class Scan final : public ScoreTable {
 public:
  explicit Scan(const ScoreInput& input)
      : input_(input), letters_(infer::residue_tokens(input.space)) {}

  std::vector<std::int64_t> letters() const override { return letters_; }

  void plan(infer::Readings& readings) override {
    for (std::int64_t i = 0; i < input_.sequences.count(); ++i) {
      const auto residues = infer::read_residues(input_.sequences, i, input_.space);
      if (input_.causal && !residues.places.empty() && residues.places.front() == 0) {
        fail(ExitCode::kUsage,
             "--scan: the model predicts a residue from what stands before it, and before the "
             "first there is nothing; score mutations by --method pseudo");
      }
      rows_.push_back(input_.add_whole(readings, i));
    }
  }

  nlohmann::ordered_json identity() const override { return "scan"; }

  void write(const RowWork& work, const Take& take) override {
    std::string header = "sequence\tid\tposition\tresidue";
    for (const char letter : infer::kResidues) header += fmt::format("\t{}", letter);
    take(header + "\n");
    for (std::int64_t i = 0; i < input_.sequences.count(); ++i) write_sequence(work, i, take);
  }

  nlohmann::ordered_json facts() const override { return {{"positions", positions_}}; }

 private:
  void write_sequence(const RowWork& work, std::int64_t sequence, const Take& take) {
    const auto residues = infer::read_residues(input_.sequences, sequence, input_.space);
    const auto& rows = rows_[static_cast<std::size_t>(sequence)];
    const bool masked = input_.method == infer::ScoreMethod::kMasked;
    const auto width = 1 + std::ssize(letters_);
    const auto id = escaped_field(input_.sequences.id(sequence));
    auto numbers = masked ? std::vector<float>() : work.read(rows.begin);
    for (std::int64_t i = 0; i < std::ssize(residues.places); ++i) {
      const auto place = residues.places[static_cast<std::size_t>(i)];
      if (masked) numbers = work.read(rows.begin + i);
      const auto index = masked ? 0 : input_.unmasked_index(place, i);
      const auto own = std::span(numbers).subspan(static_cast<std::size_t>(index * width),
                                                  static_cast<std::size_t>(width));
      auto line = fmt::format("{}\t{}\t{}\t{}", sequence + 1, id, input_.offset + i,
                              residues.letters[static_cast<std::size_t>(i)]);
      for (const float log_p : own.subspan(1)) {
        line += fmt::format("\t{:.6f}", static_cast<double>(log_p) - static_cast<double>(own[0]));
      }
      take(line + "\n");
    }
    positions_ += std::ssize(residues.places);
  }

  ScoreInput input_;
  std::vector<std::int64_t> letters_;
  std::vector<infer::Readings::Range> rows_;
  std::int64_t positions_ = 0;
};

}  // namespace

std::unique_ptr<ScoreTable> score_scan(const ScoreInput& input) {
  return std::make_unique<Scan>(input);
}

}  // namespace performer::cli
