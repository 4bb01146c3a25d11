#include "performer/data/fasta_counts.h"

#include <fmt/format.h>

#include <array>

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
  struct Kind {
    std::int64_t count;
    const char *one, *many, *what;
  };
  const std::array<Kind, 7> kinds = {
      {{c.blank, "record", "records", " without residues skipped"},
       {c.gaps, "gap", "gaps", " dropped"},
       {c.end_stops, "stop", "stops", " dropped at the end"},
       {c.inner_stops, "stop", "stops", " inside read as X"},
       {c.unknown, "J", "J", " read as X"},
       {c.duplicate_ids, "id", "ids", " seen before, kept"},
       {c.duplicates, "equal sequence", "equal sequences", " dropped"}}};
  std::string text;
  for (const auto& [count, one, many, what] : kinds) {
    if (count == 0) continue;
    text +=
        fmt::format("{}{} {}{}", text.empty() ? "" : ", ", count, count == 1 ? one : many, what);
  }
  return text;
}

}  // namespace performer::data
