#pragma once

#include <cstdint>
#include <memory>

#include "performer/data/batch.h"
#include "performer/data/dataset.h"

namespace performer::data {

/// Batches of a dataset by position.
///
/// Training: an endless order. Position p is sample permute(epoch = p / size, p % size), keyed by
/// the seed: resuming needs only the position, ranks take disjoint positions, and every epoch gives
/// every sample once. Crops and masks are keyed by (seed, epoch, sample).
/// Evaluation: the samples in order, cropped from the start, masks keyed by (seed, sample); batches
/// end with the last sample.
class BatchStream {
 public:
  BatchStream(std::shared_ptr<const Dataset> dataset, Use use);

  /// Rows first ... first + rows - 1; safe to call from many threads. Evaluation: fewer at the end,
  /// first < size().
  Batch batch(std::int64_t first, std::int64_t rows) const;

  /// Samples in an epoch.
  std::int64_t size() const { return dataset_->size(); }
  const Dataset& dataset() const { return *dataset_; }

 private:
  SampleKey key_at(std::int64_t position) const;

  std::shared_ptr<const Dataset> dataset_;
  Use use_;
};

}  // namespace performer::data
