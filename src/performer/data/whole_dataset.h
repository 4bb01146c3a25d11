#pragma once

#include <memory>

#include "performer/data/dataset.h"
#include "performer/data/whole_sequences.h"

namespace performer::data {

/// One sequence a row, as it was read, with all that stands around it; cut off at the row's length.
class WholeDataset final : public Dataset {
 public:
  /// `sequences` not empty.
  WholeDataset(DataConfig config, TokenSpace space,
               std::shared_ptr<const WholeSequences> sequences);

  std::int64_t size() const override { return sequences_->count(); }
  RowInfo fill(const SampleKey& key, const Row& row) const override;
  const WholeSequences* whole() const override { return sequences_.get(); }

 private:
  std::shared_ptr<const WholeSequences> sequences_;
};

}  // namespace performer::data
