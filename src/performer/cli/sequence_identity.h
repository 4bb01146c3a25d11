#pragma once

#include <string>

#include "performer/data/whole_sequences.h"
#include "performer/infer/load_model.h"

namespace performer::cli {

/// What a result is of, so that an interrupted command goes on with the same: hashes of the
/// checkpoint's manifest, and of ids and tokens.
std::string model_hash(const infer::LoadedModel& loaded);
std::string content_hash(const data::WholeSequences& sequences);

}  // namespace performer::cli
