#pragma once

#include <cstdint>
#include <string>

namespace performer::data {

/// What was met on the way and mended.
struct FastaCounts {
  std::int64_t records = 0;        // with at least one residue
  std::int64_t residues = 0;       // of those
  std::int64_t blank = 0;          // records without a residue: skipped
  std::int64_t gaps = 0;           // - and . : dropped
  std::int64_t end_stops = 0;      // * at the end of a sequence: dropped
  std::int64_t inner_stops = 0;    // * inside: X
  std::int64_t unknown = 0;        // J: X
  std::int64_t duplicate_ids = 0;  // kept; counted by who holds the ids
  std::int64_t duplicates = 0;     // equal sequences dropped, where asked for
  std::int64_t bytes = 0;          // read, unpacked

  FastaCounts& operator+=(const FastaCounts& more);
};

/// The mended ones in words; empty where nothing was.
std::string mended(const FastaCounts& counts);

}  // namespace performer::data
