#include "performer/core/nearest.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>

namespace performer {
namespace {

constexpr std::size_t kLongest = 200;  // longer is no misspelt name, and costs the square

// Insertions, deletions, replacements and swaps of neighbours that make b of a.
std::int64_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::int64_t> before, above(b.size() + 1);
  std::iota(above.begin(), above.end(), 0);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::vector<std::int64_t> row(b.size() + 1, static_cast<std::int64_t>(i));
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::int64_t replaced = above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({replaced, above[j] + 1, row[j - 1] + 1});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before = std::exchange(above, std::move(row));
  }
  return above.back();
}

std::string_view last_part(std::string_view dotted) {
  return dotted.substr(dotted.rfind('.') + 1);  // npos + 1 = 0: the whole
}

// More changes than that make another word.
std::int64_t tolerated(std::string_view word) {
  return std::max<std::int64_t>(1, std::ssize(word) / 3);
}

}  // namespace

std::string nearest_name(std::string_view name, const std::vector<std::string>& names) {
  std::string best;
  if (name.empty() || name.size() > kLongest) return best;
  const std::string_view last = last_part(name);
  std::int64_t best_distance = tolerated(name);
  for (const auto& candidate : names) {
    const std::int64_t parts = edit_distance(last, last_part(candidate));
    const std::int64_t distance = std::min(edit_distance(name, candidate), parts + 1);
    // A shared section makes no two keys alike: optimizer.lr is not optimizer.eps.
    const bool near = distance <= best_distance && parts <= tolerated(last);
    if (near && (best.empty() || distance < best_distance)) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

std::string did_you_mean(std::string_view name, const std::vector<std::string>& names) {
  const auto near = nearest_name(name, names);
  return near.empty() ? near : "; did you mean " + near + "?";
}

}  // namespace performer
