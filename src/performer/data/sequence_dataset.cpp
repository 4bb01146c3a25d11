#include "performer/data/sequence_dataset.h"

#include <algorithm>
#include <utility>

#include "performer/data/language_row.h"
#include "performer/data/targets.h"

namespace performer::data {
namespace {

// BOS, the sequence, EOS by position.
class Framed {
 public:
  Framed(std::span<const std::uint8_t> body, const TokenSpace& space)
      : body_(body), space_(space), lead_(space.bos >= 0 ? 1 : 0) {}

  std::int64_t size() const {
    return lead_ + static_cast<std::int64_t>(body_.size()) + (space_.eos >= 0 ? 1 : 0);
  }

  void read(std::int64_t begin, std::span<std::int64_t> out) const {
    std::int64_t position = begin;
    auto place = out.begin();
    if (position < lead_ && place != out.end()) {
      *place++ = space_.bos;
      ++position;
    }
    const auto from = static_cast<std::size_t>(position - lead_);
    const auto count = std::min(body_.size() - std::min(from, body_.size()),
                                static_cast<std::size_t>(out.end() - place));
    if (count > 0)
      place = std::copy_n(body_.begin() + static_cast<std::ptrdiff_t>(from), count, place);
    if (place != out.end()) *place = space_.eos;
  }

 private:
  std::span<const std::uint8_t> body_;
  const TokenSpace& space_;
  std::int64_t lead_;
};

}  // namespace

SequenceDataset::SequenceDataset(DataConfig config, TokenSpace space,
                                 std::unique_ptr<SequenceSource> source)
    : Dataset(std::move(config), std::move(space)), source_(std::move(source)) {}

RowInfo SequenceDataset::fill(const SampleKey& key, const Row& row) const {
  const Framed framed(source_->tokens(key.sample), space());
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
