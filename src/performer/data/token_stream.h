#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "performer/data/dataset.h"
#include "performer/data/permutation.h"
#include "performer/data/sequence_source.h"
#include "performer/data/whole_sequences.h"

namespace performer::data {

/// One long run of tokens, read anywhere; safe from many threads.
class TokenStream {
 public:
  virtual ~TokenStream() = default;
  virtual std::int64_t size() const = 0;
  /// begin + out.size() at most size().
  virtual void read(std::int64_t begin, std::span<std::int64_t> out) const = 0;
  /// EOS between the parts and at both ends: tokens that no file holds.
  virtual std::int64_t ends() const = 0;
  virtual double word_multiplier() const { return 0.0; }
  /// What was mended while reading, in words.
  virtual std::string notes() const { return {}; }

 protected:
  TokenStream() = default;
  TokenStream(const TokenStream&) = default;
  TokenStream& operator=(const TokenStream&) = default;
};

/// Sequences joined by EOS, in an order drawn once from the seed (files are often sorted by
/// likeness): EOS s1 EOS s2 ... EOS. Keeps the place of each 64th sequence; opening walks over all
/// lengths once.
class JoinedStream final : public TokenStream {
 public:
  JoinedStream(std::unique_ptr<SequenceSource> source, std::int64_t eos, std::uint64_t seed);

  std::int64_t size() const override { return size_; }
  std::int64_t ends() const override { return source_->size() + 1; }
  void read(std::int64_t begin, std::span<std::int64_t> out) const override;
  std::string notes() const override { return mended(source_->counts()); }

 private:
  std::unique_ptr<SequenceSource> source_;
  std::int64_t eos_;
  Permutation order_;
  std::vector<std::int64_t> places_;
  std::int64_t size_ = 0;
};

/// Rows are consecutive blocks of a stream; the last one may be shorter. Causal: the target of a
/// block's last token is the first one of the next block.
class BlockDataset final : public Dataset, private WholeSequences {
 public:
  BlockDataset(DataConfig config, TokenSpace space, std::unique_ptr<TokenStream> stream);

  std::int64_t size() const override;
  RowInfo fill(const SampleKey& key, const Row& row) const override;
  double word_multiplier() const override { return stream_->word_multiplier(); }
  /// The stream is one long sequence.
  const WholeSequences* whole() const override { return this; }

 private:
  std::int64_t count() const override { return 1; }
  std::int64_t tokens(std::int64_t /*sequence*/) const override { return stream_->size(); }
  void read(std::int64_t /*sequence*/, std::int64_t begin,
            std::span<std::int64_t> out) const override {
    stream_->read(begin, out);
  }
  std::int64_t residues(std::int64_t /*sequence*/) const override {
    return stream_->size() - stream_->ends();
  }
  std::string id(std::int64_t /*sequence*/) const override { return {}; }
  std::string notes() const override { return stream_->notes(); }

  std::unique_ptr<TokenStream> stream_;
};

}  // namespace performer::data
