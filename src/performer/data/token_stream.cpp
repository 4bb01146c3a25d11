#include "performer/data/token_stream.h"

#include <algorithm>

#include "performer/data/language_row.h"
#include "performer/data/targets.h"

namespace performer::data {
namespace {

constexpr std::int64_t kStride = 64;
constexpr std::uint8_t kJoinOrder = 1;

}  // namespace

JoinedStream::JoinedStream(std::unique_ptr<SequenceSource> source, std::int64_t eos,
                           std::uint64_t seed)
    : source_(std::move(source)), eos_(eos), order_(source_->size(), {seed, 0, kJoinOrder}) {
  places_.reserve(static_cast<std::size_t>(source_->size() / kStride + 1));
  for (std::int64_t k = 0; k < source_->size(); ++k) {
    if (k % kStride == 0) places_.push_back(size_);
    size_ += 1 + source_->length(order_(k));
  }
  ++size_;  // the last EOS
}

void JoinedStream::read(std::int64_t begin, std::span<std::int64_t> out) const {
  const auto after = std::ranges::upper_bound(places_, begin);
  const std::int64_t group = std::distance(places_.begin(), after) - 1;
  std::int64_t place = places_[static_cast<std::size_t>(group)];
  auto to = out.begin();
  std::vector<std::uint8_t> body;
  for (std::int64_t k = group * kStride; to != out.end() && k < source_->size(); ++k) {
    const std::int64_t sequence = order_(k);
    const std::int64_t unit = 1 + source_->length(sequence);
    if (place + unit > begin) {
      std::int64_t skip = std::max<std::int64_t>(begin - place, 0);
      if (skip == 0) {
        *to++ = eos_;
        skip = 1;
      }
      body.resize(static_cast<std::size_t>(
          std::min<std::int64_t>(source_->length(sequence) - (skip - 1), out.end() - to)));
      source_->read(sequence, skip - 1, body);
      to = std::ranges::copy(body, to).out;
    }
    place += unit;
  }
  if (to != out.end()) *to = eos_;
}

BlockDataset::BlockDataset(DataConfig config, TokenSpace space, std::unique_ptr<TokenStream> stream)
    : Dataset(std::move(config), std::move(space)), stream_(std::move(stream)) {}

std::int64_t BlockDataset::size() const {
  const std::int64_t usable = stream_->size() - (causal() ? 1 : 0);
  return std::max<std::int64_t>((usable + length() - 1) / length(), 1);
}

RowInfo BlockDataset::fill(const SampleKey& key, const Row& row) const {
  const std::int64_t begin = key.sample * length();
  const std::int64_t usable = stream_->size() - (causal() ? 1 : 0);
  const std::int64_t count = std::min(length(), usable - begin);
  stream_->read(begin, row.tokens.first(static_cast<std::size_t>(count)));
  if (!causal()) return masked_row(row, count, key, *this);
  std::int64_t next = kIgnore;
  stream_->read(begin + count, {&next, 1});
  return causal_row(row, count, next);
}

}  // namespace performer::data
