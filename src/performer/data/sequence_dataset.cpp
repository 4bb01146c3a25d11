#include "performer/data/sequence_dataset.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "performer/data/language_row.h"
#include "performer/data/targets.h"

namespace performer::data {
namespace {

// BOS, the sequence, EOS by position.
class Framed {
 public:
  Framed(const SequenceSource& source, std::int64_t index, const TokenSpace& space)
      : source_(source),
        index_(index),
        body_(source.length(index)),
        space_(space),
        lead_(space.bos >= 0 ? 1 : 0) {}

  std::int64_t size() const { return lead_ + body_ + (space_.eos >= 0 ? 1 : 0); }

  void read(std::int64_t begin, std::span<std::int64_t> out) const {
    std::int64_t position = begin;
    auto place = out.begin();
    if (position < lead_ && place != out.end()) {
      *place++ = space_.bos;
      ++position;
    }
    const std::int64_t from = std::min(position - lead_, body_);
    std::vector<std::uint8_t> part(
        static_cast<std::size_t>(std::min<std::int64_t>(body_ - from, out.end() - place)));
    source_.read(index_, from, part);
    place = std::ranges::copy(part, place).out;
    if (place != out.end()) *place = space_.eos;
  }

 private:
  const SequenceSource& source_;
  std::int64_t index_, body_;
  const TokenSpace& space_;
  std::int64_t lead_;
};

}  // namespace

SequenceDataset::SequenceDataset(DataConfig config, TokenSpace space,
                                 std::unique_ptr<SequenceSource> source)
    : Dataset(std::move(config), std::move(space)), source_(std::move(source)) {}

std::int64_t SequenceDataset::tokens(std::int64_t sequence) const {
  const auto& s = space();
  return source_->length(sequence) + (s.bos >= 0 ? 1 : 0) + (s.eos >= 0 ? 1 : 0);
}

void SequenceDataset::read(std::int64_t sequence, std::int64_t begin,
                           std::span<std::int64_t> out) const {
  Framed(*source_, sequence, space()).read(begin, out);
}

RowInfo SequenceDataset::fill(const SampleKey& key, const Row& row) const {
  const Framed framed(*source_, key.sample, space());
  const std::int64_t usable = framed.size() - (causal() ? 1 : 0);  // the last one is target only
  const std::int64_t length = std::min(this->length(), usable);
  std::int64_t begin = 0;
  if (key.use == Use::kTraining && usable > length) {
    begin = SampleRandom(key, Purpose::kCrop).below(usable - length + 1);
  }
  framed.read(begin, row.tokens.first(static_cast<std::size_t>(length)));
  if (!causal()) return masked_row(row, length, key, *this);
  std::int64_t next = kIgnore;
  framed.read(begin + length, {&next, 1});
  return causal_row(row, length, next);
}

}  // namespace performer::data
