#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace performer::cli {

/// A line of a table of mutations.
struct MutationLine {
  std::int64_t line = 0;
  std::string id;      // which sequence; empty without that column
  std::string mutant;  // A24G, or A24G:K30R
};

struct MutationTable {
  std::string name;
  bool has_ids = false;
  std::vector<MutationLine> lines;  // in the order of the file, equal ones too

  std::string where(const MutationLine& line) const;  // file:line
};

/// From a CSV file [.gz] (with quotes as RFC 4180 has them, but no line feeds in fields), or one
/// with tabs, whose header has a column `mutant` or `mutation`, and `id` where there are several
/// sequences. Other columns are passed over. kBadInput for anything else.
MutationTable read_mutations(const std::string& path);

}  // namespace performer::cli
