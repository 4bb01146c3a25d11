#pragma once

#include <cstdint>

#include "performer/data/dataset.h"

namespace performer::data {

/// Targets of the next token: target i is token i + 1, the last one `next` (kIgnore: none).
/// row.tokens holds `length` real tokens.
RowInfo causal_row(const Row& row, std::int64_t length, std::int64_t next);

/// BERT's rule: each regular token is chosen with `probability`, at least one in a row that has
/// any; a chosen one is a target and becomes MASK (80 %), a random regular token (10 %) or stays
/// (10 %). Changes row.tokens in place.
RowInfo masked_row(const Row& row, std::int64_t length, const SampleKey& key,
                   const Dataset& dataset);

}  // namespace performer::data
