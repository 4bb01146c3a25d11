#include "performer/infer/mutation.h"

#include <algorithm>
#include <charconv>

#include "performer/core/error.h"
#include "performer/core/safe_text.h"

namespace performer::infer {
namespace {

constexpr std::string_view kLetters = "ACDEFGHIKLMNPQRSTVWYBJOUXZ";

bool is_letter(char c) { return kLetters.find(c) != std::string_view::npos; }

Mutation parse_one(std::string_view text, const std::string& where) {
  Mutation mutation;
  bool right = text.size() >= 3;
  if (right) {
    mutation.from = text.front();
    mutation.to = text.back();
    const auto number = text.substr(1, text.size() - 2);
    const auto [end, error] =
        std::from_chars(number.data(), number.data() + number.size(), mutation.position);
    right = error == std::errc() && end == number.data() + number.size() &&
            is_letter(mutation.from) && kResidues.find(mutation.to) != std::string_view::npos;
  }
  if (!right) {
    fail(ExitCode::kBadInput,
         "{}: a mutation is written A24G (residue, position, new residue), several as A24G:K30R; "
         "got {}",
         where, shown(std::string(text)));
  }
  return mutation;
}

}  // namespace

std::vector<Mutation> parse_mutations(std::string_view text, const std::string& where) {
  std::vector<Mutation> mutations;
  for (std::size_t begin = 0; begin <= text.size();) {
    const auto end = std::min(text.find(':', begin), text.size());
    mutations.push_back(parse_one(text.substr(begin, end - begin), where));
    begin = end + 1;
  }
  std::vector<std::int64_t> positions;
  positions.reserve(mutations.size());
  for (const auto& mutation : mutations) positions.push_back(mutation.position);
  std::ranges::sort(positions);
  const auto twice = std::ranges::adjacent_find(positions);
  if (twice != positions.end()) {
    fail(ExitCode::kBadInput, "{}: {} changes position {} twice", where, shown(std::string(text)),
         *twice);
  }
  return mutations;
}

std::vector<std::int64_t> residue_tokens(const data::TokenSpace& space) {
  std::vector<std::int64_t> tokens;
  const bool may = space.kind == "protein" || space.kind == "hf";
  for (const char letter : kResidues) {
    const auto own = may ? space.encode(std::string_view(&letter, 1)) : std::vector<std::int64_t>();
    if (own.size() != 1 || !space.is_regular(own[0])) {
      fail(ExitCode::kUsage,
           "mutations are of residues, and the model reads {}; take a model of proteins",
           space.kind == "hf" ? "pieces of words" : space.kind);
    }
    tokens.push_back(own[0]);
  }
  return tokens;
}

Residues read_residues(const data::WholeSequences& sequences, std::int64_t sequence,
                       const data::TokenSpace& space) {
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(sequences.tokens(sequence)));
  sequences.read(sequence, 0, tokens);
  Residues residues;
  for (std::int64_t place = 0; place < std::ssize(tokens); ++place) {
    const auto token = tokens[static_cast<std::size_t>(place)];
    if (!space.is_regular(token)) continue;
    const auto letter = space.decode({&token, 1});
    if (letter.size() != 1) {
      fail(ExitCode::kUsage,
           "mutations are of residues, and the model reads {} as one token; take a model of "
           "proteins",
           shown(letter));
    }
    residues.places.push_back(place);
    residues.letters += letter;
  }
  return residues;
}

std::vector<Change> changes_of(const std::vector<Mutation>& mutations, const Residues& residues,
                               const data::TokenSpace& space, const MutationSite& site) {
  const auto length = std::ssize(residues.places);
  std::vector<Change> changes;
  for (const auto& [from, position, to] : mutations) {
    // Positions are any 64-bit number: the difference might not be one.
    const bool inside = position >= site.offset && position < site.offset + length;
    if (!inside) {
      fail(ExitCode::kBadInput,
           "{}: {}{}{}: {} has positions {} to {}; --offset says the number of the first",
           site.where, from, position, to, shown(site.id), site.offset, site.offset + length - 1);
    }
    const auto i = static_cast<std::size_t>(position - site.offset);
    if (residues.letters[i] != from) {
      fail(ExitCode::kBadInput,
           "{}: {}{}{}: position {} of {} is {}, the mutation expects {}; --offset says the number "
           "of the first residue",
           site.where, from, position, to, position, shown(site.id), residues.letters[i], from);
    }
    changes.push_back({residues.places[i], space.encode(std::string_view(&to, 1)).at(0)});
  }
  return changes;
}

}  // namespace performer::infer
