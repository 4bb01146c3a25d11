#pragma once

#include <cstdint>
#include <string>

#include "performer/data/whole_sequences.h"
#include "performer/infer/load_model.h"

namespace performer::cli {

/// kUsage where something has the name `path` and `overwrite` is not set. A link is something,
/// wherever it leads.
void check_new_output(const std::string& path, bool overwrite);

/// Before hours of work: kBadInput where the model cannot read sequences of `input` whole, unless
/// beginnings of `length` tokens are asked for (0: they are not; kWholeOnly: they cannot be), and
/// kUsage where it cannot read those.
inline constexpr std::int64_t kWholeOnly = -1;
void check_lengths(const infer::LoadedModel& loaded, const data::WholeSequences& all,
                   const std::string& input, std::int64_t length);

}  // namespace performer::cli
