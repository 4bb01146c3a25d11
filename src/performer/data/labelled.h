#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "performer/data/dataset.h"

namespace performer::data {

/// Documents with a class (classify), or pairs of documents with one (match), from a TSV. A row is
/// BOS and the document's first tokens. A `split` column chooses the rows where all splits share
/// one file.
std::unique_ptr<Dataset> open_labelled(const DataConfig& config, Split split,
                                       const TokenSpace& space);

/// Whether the file has a row of this split.
bool has_labelled_split(const DataConfig& config, Split split);

/// The text's token space with the classes of the training rows, sorted.
TokenSpace labelled_space(const DataConfig& config);

}  // namespace performer::data
