#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "performer/data/sequence_source.h"

namespace performer::data {

struct FastaOptions {
  bool deduplicate = false;
  bool keep_ids = false;  // for SequenceSource::id
  /// Keeps the records whose id passes; empty: all.
  std::function<bool(const std::string& id)> keep;
  std::int64_t max_residues = std::int64_t{1} << 30;
  std::int64_t max_records = std::int64_t{1} << 27;   // each takes some bytes, of those dropped too
  std::int64_t max_id_bytes = std::int64_t{1} << 30;  // where ids are kept
};

struct FastaContent {
  std::unique_ptr<MemorySequences> sequences;
  FastaCounts counts;
};

/// Whole FASTA files, one after the other; bounds and duplicates are those of all together.
/// kBadInput above a bound (naming `performer data build`) and where one holds no sequence.
FastaContent read_fasta(const std::vector<std::string>& files, const FastaOptions& options = {});
FastaContent read_fasta(const std::string& file, const FastaOptions& options = {});

}  // namespace performer::data
