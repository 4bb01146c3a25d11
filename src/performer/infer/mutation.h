#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "performer/data/token_space.h"
#include "performer/data/whole_sequences.h"
#include "performer/infer/readings.h"

namespace performer::infer {

/// Another residue at a position of a protein, written A24G: from, position, to.
struct Mutation {
  char from = 0;
  std::int64_t position = 0;  // as written; the first residue's number is the reader's matter
  char to = 0;
};

/// "A24G", or several with colons between: "A24G:K30R". kBadInput at `where` for anything else, and
/// for a position that is changed twice.
std::vector<Mutation> parse_mutations(std::string_view text, const std::string& where);

/// The 20 standard residues, in the order of scans, and their tokens in a model of proteins; kUsage
/// for models whose tokens are no residues.
inline constexpr std::string_view kResidues = "ACDEFGHIKLMNPQRSTVWY";
std::vector<std::int64_t> residue_tokens(const data::TokenSpace& space);

/// The residues of a sequence: where they stand among its tokens, and their letters.
struct Residues {
  std::vector<std::int64_t> places;
  std::string letters;
};
Residues read_residues(const data::WholeSequences& sequences, std::int64_t sequence,
                       const data::TokenSpace& space);

/// The changes of tokens that mutations are, where the first residue has the number `offset`.
/// kBadInput at `where`, naming the sequence's id, for a position that it does not have and for
/// another letter than the mutation says.
struct MutationSite {
  std::string where, id;
  std::int64_t offset = 1;
};
std::vector<Change> changes_of(const std::vector<Mutation>& mutations, const Residues& residues,
                               const data::TokenSpace& space, const MutationSite& site);

}  // namespace performer::infer
