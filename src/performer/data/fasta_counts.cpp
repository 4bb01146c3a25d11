#include "performer/data/fasta_counts.h"

#include <fmt/format.h>

#include <array>
#include <utility>

namespace performer::data {

FastaCounts& FastaCounts::operator+=(const FastaCounts& more) {
  records += more.records;
  residues += more.residues;
  blank += more.blank;
  gaps += more.gaps;
  end_stops += more.end_stops;
  inner_stops += more.inner_stops;
  unknown += more.unknown;
  duplicate_ids += more.duplicate_ids;
  duplicates += more.duplicates;
  bytes += more.bytes;
  return *this;
}

std::string mended(const FastaCounts& c) {
  const std::array<std::pair<std::int64_t, const char*>, 7> kinds = {
      std::pair{c.blank, "records without residues skipped"},
      {c.gaps, "gaps dropped"},
      {c.end_stops, "stops dropped at the end"},
      {c.inner_stops, "stops inside read as X"},
      {c.unknown, "J read as X"},
      {c.duplicate_ids, "ids seen before, kept"},
      {c.duplicates, "equal sequences dropped"}};
  std::string text;
  for (const auto& [count, what] : kinds) {
    if (count > 0) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, what);
  }
  return text;
}

}  // namespace performer::data
