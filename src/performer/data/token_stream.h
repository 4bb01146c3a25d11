#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "performer/data/dataset.h"
#include "performer/data/permutation.h"
#include "performer/data/sequence_source.h"

namespace performer::data {

/// One long run of tokens, read anywhere; safe from many threads.
class TokenStream {
 public:
  virtual ~TokenStream() = default;
  virtual std::int64_t size() const = 0;
  /// begin + out.size() at most size().
  virtual void read(std::int64_t begin, std::span<std::int64_t> out) const = 0;
  virtual double word_multiplier() const { return 0.0; }

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
  void read(std::int64_t begin, std::span<std::int64_t> out) const override;

 private:
  std::unique_ptr<SequenceSource> source_;
  std::int64_t eos_;
  Permutation order_;
  std::vector<std::int64_t> places_;
  std::int64_t size_ = 0;
};

/// Rows are consecutive blocks of a stream; the last one may be shorter. Causal: the target of a
/// block's last token is the first one of the next block.
class BlockDataset final : public Dataset {
 public:
  BlockDataset(DataConfig config, TokenSpace space, std::unique_ptr<TokenStream> stream);

  std::int64_t size() const override;
  RowInfo fill(const SampleKey& key, const Row& row) const override;
  double word_multiplier() const override { return stream_->word_multiplier(); }

 private:
  std::unique_ptr<TokenStream> stream_;
};

}  // namespace performer::data
