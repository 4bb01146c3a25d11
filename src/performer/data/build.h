#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "performer/data/fasta.h"
#include "performer/data/statistics.h"

namespace performer::data {

using Progress = std::function<void(const FastaCounts& so_far)>;

struct BuildResult {
  FastaCounts counts;
  LengthStatistics lengths;
  std::string sha256;  // of the file made
};

struct BuildOptions {
  bool deduplicate = false;  // 16 bytes of memory and more for each sequence; else constant memory
  Progress progress;         // called now and then
};

/// FASTA -> .pds in one pass. Nothing appears under `output` where it fails.
BuildResult build_pds(const std::string& input, const std::string& output,
                      const BuildOptions& options);

/// Calls `take` with every sequence of a FASTA or .pds file; constant memory.
FastaCounts for_sequences(const std::string& path,
                          const std::function<void(const FastaRecord& record)>& take);

}  // namespace performer::data
