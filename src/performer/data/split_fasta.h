#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "performer/data/statistics.h"

namespace performer::data {

/// The paper's held-out Pfam families.
inline constexpr std::array<std::string_view, 20> kPaperFamilies = {
    "PF18369", "PF04680", "PF17988", "PF12325", "PF03272", "PF03938", "PF17724",
    "PF10696", "PF11968", "PF04153", "PF06173", "PF12378", "PF04420", "PF10841",
    "PF06917", "PF03492", "PF06905", "PF15340", "PF17055", "PF05318"};

struct SplitOptions {
  std::string families;               // TSV with columns id and family; empty: nothing held out
  std::vector<std::string> held_out;  // families; empty: the paper's
  double valid = 0.02;
  double test = 0.05;
  bool deduplicate = false;
  std::string format = "fasta";  // or pds
  bool overwrite = false;        // what an earlier split has left in the folder
};

struct SplitPart {
  std::string name, path;  // path empty: no sequence, no file
  LengthStatistics lengths;
};

struct SplitResult {
  std::vector<SplitPart> parts;  // train, valid, test, ood
  std::int64_t duplicates = 0;
};

/// Sequences into one file for each split under `folder`: members of the held-out families are ood,
/// the others go by the hash of their letters, so that equal sequences stay together and a larger
/// file is split alike. A family field may name several, with commas or semicolons between. Parts
/// of an earlier split would mix with these: kUsage where there is one, unless it is to be
/// replaced.
SplitResult split_fasta(const std::string& input, const std::string& folder,
                        const SplitOptions& options);

}  // namespace performer::data
