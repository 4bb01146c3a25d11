#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

#include "performer/cli/mutation_table.h"
#include "performer/cli/score.h"
#include "performer/cli/sequence_table.h"
#include "performer/core/error.h"
#include "performer/core/safe_text.h"
#include "performer/core/sha256.h"
#include "performer/infer/mutation.h"

namespace performer::cli {
namespace {

using infer::Readings;
using infer::ScoreMethod;

// Which sequence a line is about.
class SequenceNames {
 public:
  SequenceNames(const ScoreInput& input, const MutationTable& table)
      : input_(input), table_(table) {
    const auto count = input.sequences.count();
    if (!table.has_ids && count != 1) {
      fail(ExitCode::kBadInput,
           "{}: {} has {} sequences; a column id must say which one a mutation is of", table.name,
           input.name, count);
    }
    for (std::int64_t i = 0; table.has_ids && i < count; ++i) {
      ++places_.try_emplace(input.sequences.id(i), Place{i, 0}).first->second.count;
    }
  }

  std::int64_t find(const MutationLine& line) const {
    if (!table_.has_ids) return 0;
    const auto found = places_.find(line.id);
    if (found == places_.end()) {
      fail(ExitCode::kBadInput, "{}: no sequence of {} has the id {}", table_.where(line),
           input_.name, shown(line.id));
    }
    if (found->second.count > 1) {
      fail(ExitCode::kBadInput, "{}: {} sequences of {} have the id {}, which one is not clear",
           table_.where(line), found->second.count, input_.name, shown(line.id));
    }
    return found->second.sequence;
  }

 private:
  struct Place {
    std::int64_t sequence, count;
  };
  const ScoreInput& input_;
  const MutationTable& table_;
  std::unordered_map<std::string, Place> places_;
};

class MutationScores final : public ScoreTable {
 public:
  MutationScores(const ScoreInput& input, const std::string& path)
      : input_(input), table_(read_mutations(path)), letters_(infer::residue_tokens(input.space)) {
    const SequenceNames names(input_, table_);
    std::unordered_map<std::int64_t, infer::Residues> residues;
    for (const auto& line : table_.lines) {
      const auto sequence = names.find(line);
      auto [own, made] = residues.try_emplace(sequence);
      if (made) own->second = infer::read_residues(input_.sequences, sequence, input_.space);
      mutants_.push_back(read(line, sequence, own->second));
    }
  }

  std::vector<std::int64_t> letters() const override {
    return input_.method == ScoreMethod::kWhole ? std::vector<std::int64_t>() : letters_;
  }

  void plan(Readings& readings) override {
    for (auto& mutant : mutants_) {
      if (input_.method == ScoreMethod::kMasked) {
        for (const auto& site : mutant.sites) {
          const auto [row, made] = masked_.try_emplace({mutant.sequence, site.place});
          if (made) row->second = readings.add_masked(mutant.sequence, site.place);
        }
        continue;
      }
      const auto [rows, made] = wild_types_.try_emplace(mutant.sequence);
      if (made) rows->second = input_.add_whole(readings, mutant.sequence);
      if (input_.method == ScoreMethod::kWhole) plan_whole(readings, mutant);
    }
  }

  nlohmann::ordered_json identity() const override {
    Sha256 hash;
    for (const auto& line : table_.lines) {
      const std::uint64_t sizes[] = {line.id.size(), line.mutant.size()};
      hash.update(std::as_bytes(std::span(sizes)));
      hash.update(line.id);
      hash.update(line.mutant);
    }
    return {{"mutations", hash.finish()}, {"offset", input_.offset}};
  }

  void write(const RowWork& work, const Take& take) override {
    take("sequence\tid\tmutant\tscore\n");
    for (std::size_t i = 0; i < mutants_.size(); ++i) {
      const auto& mutant = mutants_[i];
      const double score =
          input_.method == ScoreMethod::kWhole ? of_whole(work, mutant) : of_sites(work, mutant);
      take(fmt::format("{}\t{}\t{}\t{:.6f}\n", mutant.sequence + 1,
                       escaped_field(input_.sequences.id(mutant.sequence)), table_.lines[i].mutant,
                       score));
    }
  }

  nlohmann::ordered_json facts() const override {
    return {{"mutations", static_cast<std::int64_t>(mutants_.size())}};
  }

 private:
  struct Site {
    std::int64_t place, residue;  // among the sequence's tokens, and among its residues
    std::int64_t letter;          // which of the 20 it becomes
    infer::Change change;
  };
  struct Mutant {
    std::int64_t sequence = 0;
    std::vector<Site> sites;
    Readings::Range rows;  // kWhole: of the mutant
  };

  Mutant read(const MutationLine& line, std::int64_t sequence, const infer::Residues& residues) {
    const auto where = table_.where(line);
    const auto mutations = infer::parse_mutations(line.mutant, where);
    const auto changes = infer::changes_of(mutations, residues, input_.space,
                                           {where, input_.sequences.id(sequence), input_.offset});
    Mutant mutant{sequence, {}, {}};
    for (std::size_t i = 0; i < mutations.size(); ++i) {
      const auto place = changes[i].place;
      if (input_.method == ScoreMethod::kWildtype && input_.causal && place == 0) {
        fail(ExitCode::kBadInput,
             "{}: {}: the model predicts a residue from those before it, and position {} has none; "
             "take --method pseudo",
             where, line.mutant, mutations[i].position);
      }
      mutant.sites.push_back({place, mutations[i].position - input_.offset,
                              static_cast<std::int64_t>(infer::kResidues.find(mutations[i].to)),
                              changes[i]});
    }
    return mutant;
  }

  // Equal mutants are computed once.
  void plan_whole(Readings& readings, Mutant& mutant) {
    std::vector<std::pair<std::int64_t, std::int64_t>> key = {{mutant.sequence, -1}};
    std::vector<infer::Change> changes;
    for (const auto& site : mutant.sites) {
      key.emplace_back(site.change.place, site.change.token);
      changes.push_back(site.change);
    }
    std::sort(key.begin() + 1, key.end());
    const auto [rows, made] = variants_.try_emplace(std::move(key));
    if (made) {
      rows->second =
          input_.add_whole(readings, mutant.sequence, readings.add_variant(std::move(changes)));
    }
    mutant.rows = rows->second;
  }

  double of_whole(const RowWork& work, const Mutant& mutant) const {
    return likelihood_of(work, mutant.rows).sum -
           likelihood_of(work, wild_types_.at(mutant.sequence)).sum;
  }

  // Mutations of one mutant add up, each seen in the wild type.
  double of_sites(const RowWork& work, const Mutant& mutant) const {
    const bool masked = input_.method == ScoreMethod::kMasked;
    const auto width = 1 + std::ssize(letters_);
    double score = 0;
    for (const auto& site : mutant.sites) {
      const auto row = masked ? masked_.at({mutant.sequence, site.place})
                              : wild_types_.at(mutant.sequence).begin;
      const auto index = masked ? 0 : input_.unmasked_index(site.place, site.residue);
      const auto numbers = work.read(row);
      const auto own = std::span(numbers).subspan(static_cast<std::size_t>(index * width));
      score += static_cast<double>(own[static_cast<std::size_t>(1 + site.letter)]) -
               static_cast<double>(own[0]);
    }
    return score;
  }

  ScoreInput input_;
  MutationTable table_;
  std::vector<std::int64_t> letters_;
  std::vector<Mutant> mutants_;
  std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t> masked_;  // by sequence and place
  std::unordered_map<std::int64_t, Readings::Range> wild_types_;
  std::map<std::vector<std::pair<std::int64_t, std::int64_t>>, Readings::Range> variants_;
};

}  // namespace

std::unique_ptr<ScoreTable> score_mutations(const ScoreInput& input, const std::string& path) {
  return std::make_unique<MutationScores>(input, path);
}

}  // namespace performer::cli
