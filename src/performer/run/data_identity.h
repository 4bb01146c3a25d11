#pragma once

#include <cstdint>
#include <string>

#include "performer/data/batch_stream.h"

namespace performer::run {

/// What tells one set of data from another: the number of samples and a hash of up to 2,048 of
/// them, evenly spread, as the model would see them. It costs less than a second on data of any
/// size, and does not notice a change inside of a sample that is not among these.
struct DataIdentity {
  std::int64_t samples = 0;
  std::string sha256;

  bool operator==(const DataIdentity&) const = default;
  /// "1,000 samples with hash 0123abcd…"
  std::string text() const;
};

/// `rows` is a stream for evaluation.
DataIdentity identify(const data::BatchStream& rows);

}  // namespace performer::run
