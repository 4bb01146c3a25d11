#include "performer/data/batch_stream.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "performer/data/permutation.h"

namespace performer::data {
namespace {

// Rows at full length, cut to the width of the longest once all are known. Plain memory: torch
// would fill and copy on threads of its own, which are the model's.
class Table {
 public:
  Table(std::int64_t rows, std::int64_t length, std::int64_t filler)
      : values_(static_cast<std::size_t>(rows * length), filler), rows_(rows), length_(length) {}

  std::span<std::int64_t> row(std::int64_t r) {
    return std::span(values_).subspan(static_cast<std::size_t>(r * length_),
                                      static_cast<std::size_t>(length_));
  }

  at::Tensor cut(std::int64_t width) const {
    auto tensor = at::empty({rows_, width}, at::kLong);
    auto* out = tensor.mutable_data_ptr<std::int64_t>();
    for (std::int64_t r = 0; r < rows_; ++r) {
      out = std::copy_n(values_.begin() + r * length_, width, out);
    }
    return tensor;
  }

 private:
  std::vector<std::int64_t> values_;  // [B, L]
  std::int64_t rows_, length_;
};

// A batch's tokens and how many of each row are real.
class Side {
 public:
  Side(std::int64_t rows, const Dataset& data)
      : table_(rows, data.length(), std::max<std::int64_t>(data.space().pad, 0)),
        most_(data.length()),
        multiple_(data.config().pad_multiple) {
    lengths_.reserve(static_cast<std::size_t>(rows));
  }

  std::span<std::int64_t> row(std::int64_t r) { return table_.row(r); }
  void add_length(std::int64_t real) { lengths_.push_back(real); }

  std::int64_t width() const {
    if (multiple_ == 0) return most_;
    const std::int64_t longest = std::max<std::int64_t>(std::ranges::max(lengths_), 1);
    return std::min(most_, (longest + multiple_ - 1) / multiple_ * multiple_);
  }

  at::Tensor tokens() const { return table_.cut(width()); }

  // Undefined when every row is full.
  at::Tensor mask() const {
    const std::int64_t width = this->width();
    if (std::ranges::all_of(lengths_, [&](std::int64_t n) { return n == width; })) return {};
    auto mask = at::empty({std::ssize(lengths_), width}, at::kBool);
    auto* out = mask.mutable_data_ptr<bool>();
    for (const std::int64_t length : lengths_) {
      out = std::fill_n(std::fill_n(out, length, true), width - length, false);
    }
    return mask;
  }

 private:
  Table table_;
  std::int64_t most_, multiple_;
  std::vector<std::int64_t> lengths_;
};

}  // namespace

BatchStream::BatchStream(std::shared_ptr<const Dataset> dataset, Use use)
    : dataset_(std::move(dataset)), use_(use) {}

SampleKey BatchStream::key_at(std::int64_t position) const {
  const auto seed = static_cast<std::uint64_t>(dataset_->config().seed);
  if (use_ == Use::kEvaluation) return {seed, 0, position, use_};
  const std::int64_t epoch = position / size();
  const Permutation permute(size(), {seed, epoch});
  return {seed, epoch, permute(position % size()), use_};
}

Batch BatchStream::batch(std::int64_t first, std::int64_t rows) const {
  const Dataset& data = *dataset_;
  TORCH_CHECK(first >= 0 && rows > 0, "batch: needs first >= 0 and rows > 0, got ", first, ", ",
              rows);
  if (use_ == Use::kEvaluation) {
    TORCH_CHECK(first < size(), "batch: position ", first, " is past the last of ", size());
    rows = std::min(rows, size() - first);
  }
  const bool pairs = data.target() == Target::kPairClass;
  const bool classes = data.target() != Target::kTokens;
  Side a(rows, data), b(pairs ? rows : 0, data);
  Table targets(rows, classes ? 1 : data.length(), kIgnore);
  Batch batch;
  batch.samples.reserve(static_cast<std::size_t>(rows));
  for (std::int64_t r = 0; r < rows; ++r) {
    const SampleKey key = key_at(first + r);
    const RowInfo info =
        data.fill(key, {.tokens = a.row(r),
                        .targets = classes ? std::span<std::int64_t>() : targets.row(r),
                        .tokens_b = pairs ? b.row(r) : std::span<std::int64_t>()});
    a.add_length(info.length);
    if (pairs) b.add_length(info.length_b);
    if (classes) targets.row(r)[0] = info.label;
    batch.num_targets += classes ? 1 : info.targets;
    batch.num_tokens += info.length + info.length_b;
    batch.samples.push_back(key.sample);
  }
  batch.tokens = a.tokens();
  batch.targets = classes ? targets.cut(1).flatten() : targets.cut(a.width());
  if (classes || !data.causal()) batch.key_mask = a.mask();
  if (pairs) {
    batch.tokens_b = b.tokens();
    batch.key_mask_b = b.mask();
  }
  return batch;
}

}  // namespace performer::data
