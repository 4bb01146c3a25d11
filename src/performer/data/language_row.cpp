#include "performer/data/language_row.h"

#include <cmath>

#include "performer/data/targets.h"

namespace performer::data {
namespace {

constexpr std::uint64_t kWordRange = std::uint64_t{1} << 32;
constexpr std::int64_t kTenths = 10, kMaskTenths = 8, kKeepTenth = 9;

class Masker {
 public:
  Masker(const Row& row, const SampleKey& key, const TokenSpace& space)
      : row_(row), random_(key, Purpose::kMask), space_(space) {}

  bool regular(std::int64_t token) const {
    return token >= space_.first_regular && token < space_.first_regular + space_.regular;
  }

  void choose(std::size_t i) {
    row_.targets[i] = row_.tokens[i];
    const std::int64_t fate = random_.below(kTenths);
    if (fate < kMaskTenths) {
      row_.tokens[i] = space_.mask;
    } else if (fate < kKeepTenth) {
      row_.tokens[i] = space_.first_regular + random_.below(space_.regular);
    }
  }

  SampleRandom& random() { return random_; }

 private:
  const Row& row_;
  SampleRandom random_;
  const TokenSpace& space_;
};

}  // namespace

RowInfo causal_row(const Row& row, std::int64_t length, std::int64_t next) {
  if (length == 0) return {};
  const auto n = static_cast<std::size_t>(length);
  for (std::size_t i = 0; i + 1 < n; ++i) row.targets[i] = row.tokens[i + 1];
  row.targets[n - 1] = next;
  return {.length = length, .targets = length - (next == kIgnore ? 1 : 0)};
}

RowInfo masked_row(const Row& row, std::int64_t length, const SampleKey& key,
                   const Dataset& dataset) {
  Masker masker(row, key, dataset.space());
  const auto threshold = static_cast<std::uint64_t>(
      std::llround(dataset.config().mask_probability * static_cast<double>(kWordRange)));
  const auto n = static_cast<std::size_t>(length);
  std::int64_t regular = 0, chosen = 0;
  for (std::size_t i = 0; i < n; ++i) {
    if (!masker.regular(row.tokens[i])) continue;
    ++regular;
    if (masker.random().next() >= threshold) continue;
    masker.choose(i);
    ++chosen;
  }
  if (chosen == 0 && regular > 0) {
    std::int64_t left = masker.random().below(regular);
    for (std::size_t i = 0; i < n && chosen == 0; ++i) {
      if (!masker.regular(row.tokens[i]) || left-- > 0) continue;
      masker.choose(i);
      ++chosen;
    }
  }
  return {.length = length, .targets = chosen};
}

}  // namespace performer::data
