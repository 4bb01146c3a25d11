#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "performer/data/dataset.h"
#include "performer/data/sequence_source.h"
#include "performer/data/whole_sequences.h"

namespace performer::data {

/// One sequence a row, between BOS and EOS where the token space has them, cropped to the row's
/// length: a random window in training, the beginning in evaluation.
class SequenceDataset final : public Dataset, private WholeSequences {
 public:
  /// `source` not empty.
  SequenceDataset(DataConfig config, TokenSpace space, std::unique_ptr<SequenceSource> source);

  std::int64_t size() const override { return source_->size(); }
  RowInfo fill(const SampleKey& key, const Row& row) const override;
  const WholeSequences* whole() const override { return this; }
  const SequenceSource& source() const { return *source_; }

 private:
  std::int64_t count() const override { return source_->size(); }
  std::int64_t tokens(std::int64_t sequence) const override;
  void read(std::int64_t sequence, std::int64_t begin, std::span<std::int64_t> out) const override;
  std::int64_t residues(std::int64_t sequence) const override { return source_->length(sequence); }
  std::string id(std::int64_t sequence) const override { return source_->id(sequence); }
  std::string notes() const override { return mended(source_->counts()); }

  std::unique_ptr<SequenceSource> source_;
};

}  // namespace performer::data
