#pragma once

#include <cstdint>
#include <memory>

#include "performer/data/dataset.h"
#include "performer/data/sequence_source.h"

namespace performer::data {

/// One sequence a row, between BOS and EOS where the token space has them, cropped to the row's
/// length: a random window in training, the beginning in evaluation.
class SequenceDataset final : public Dataset {
 public:
  /// `source` not empty.
  SequenceDataset(DataConfig config, TokenSpace space, std::unique_ptr<SequenceSource> source);

  std::int64_t size() const override { return source_->size(); }
  RowInfo fill(const SampleKey& key, const Row& row) const override;
  const SequenceSource& source() const { return *source_; }

 private:
  std::unique_ptr<SequenceSource> source_;
};

}  // namespace performer::data
