#include "performer/infer/readings.h"

#include <utility>

#include "performer/core/error.h"

namespace performer::infer {
namespace {

// With batches and journal, a row takes about 64 bytes beside what it holds.
constexpr std::size_t kMostReadings = std::size_t{1} << 27;

}  // namespace

void Readings::add(const Row& row) {
  if (rows_.size() >= kMostReadings) {
    fail(ExitCode::kUsage,
         "more than {} passes of the model would be needed, one for each masked residue; take "
         "--method wildtype, or score parts of the file",
         kMostReadings);
  }
  rows_.push_back(row);
}

std::int64_t Readings::add_variant(std::vector<Change> changes) {
  variants_.push_back(std::move(changes));
  return static_cast<std::int64_t>(variants_.size()) - 1;
}

Readings::Range Readings::add_whole(std::int64_t sequence, std::int64_t variant) {
  add({sequence, variant, kNone});
  return {count() - 1, count()};
}

Readings::Range Readings::add_each_masked(std::int64_t sequence, std::int64_t variant) {
  const auto begin = count();
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(base_.tokens(sequence)));
  base_.read(sequence, 0, tokens);
  for (std::size_t place = 0; place < tokens.size(); ++place) {
    if (!space_.is_regular(tokens[place])) continue;
    add({sequence, variant, static_cast<std::int64_t>(place)});
  }
  return {begin, count()};
}

std::int64_t Readings::add_masked(std::int64_t sequence, std::int64_t place) {
  add({sequence, kNone, place});
  return count() - 1;
}

void Readings::read_unmasked(const Row& row, std::int64_t begin,
                             std::span<std::int64_t> out) const {
  base_.read(row.sequence, begin, out);
  if (row.variant == kNone) return;
  for (const auto& [place, token] : variants_[static_cast<std::size_t>(row.variant)]) {
    const auto i = place - begin;
    if (i >= 0 && i < std::ssize(out)) out[static_cast<std::size_t>(i)] = token;
  }
}

void Readings::read(std::int64_t row, std::int64_t begin, std::span<std::int64_t> out) const {
  const Row& own = at(row);
  read_unmasked(own, begin, out);
  const auto i = own.masked - begin;
  if (own.masked != kNone && i >= 0 && i < std::ssize(out)) {
    out[static_cast<std::size_t>(i)] = space_.mask;
  }
}

std::int64_t Readings::behind_mask(std::int64_t row) const {
  std::int64_t token = 0;
  read_unmasked(at(row), masked(row), {&token, 1});
  return token;
}

}  // namespace performer::infer
