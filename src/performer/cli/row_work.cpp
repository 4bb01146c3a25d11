#include "performer/cli/row_work.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>

#include "performer/core/log.h"
#include "performer/infer/sequence_batch.h"

namespace performer::cli {

RowWork::RowWork(RowWorkOptions options, const nlohmann::ordered_json& identity,
                 std::vector<std::int64_t> lengths)
    : options_(std::move(options)), lengths_(std::move(lengths)) {
  if (options_.output.empty()) {
    kept_.resize(lengths_.size());
    return;
  }
  journal_.emplace(options_.output + ".partial", identity, std::ssize(lengths_), options_.restart);
  done_ = from_before_ = journal_->done();
  if (from_before_ > 0) {
    log_info("{}.partial: {} of {} rows are there from before", options_.output, from_before_,
             lengths_.size());
  }
}

bool RowWork::has(std::int64_t row) const {
  return journal_ ? journal_->has(row) : kept_[static_cast<std::size_t>(row)].has_value();
}

void RowWork::add(std::int64_t row, std::span<const float> numbers) {
  if (has(row)) return;
  if (journal_) {
    journal_->add(row, numbers);
  } else {
    kept_[static_cast<std::size_t>(row)].emplace(numbers.begin(), numbers.end());
  }
  ++done_;
}

void RowWork::compute(const MakeBatch& make) {
  const auto begin = std::chrono::steady_clock::now();
  for (const auto& batch : infer::plan_batches(lengths_, options_.batch_tokens)) {
    if (std::ranges::all_of(batch, [&](auto row) { return has(row); })) continue;
    make(batch, [&](std::int64_t row, std::span<const float> numbers) { add(row, numbers); });
    for (const auto row : batch) made_tokens_ += lengths_[static_cast<std::size_t>(row)];
    seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    log_progress(fmt::format("{}: {}/{} rows, {:.0f} tokens/s", options_.command, done_,
                             lengths_.size(), tokens_per_second()));
  }
  log_progress("");
}

std::vector<float> RowWork::read(std::int64_t row) const {
  return journal_ ? journal_->read(row) : kept_[static_cast<std::size_t>(row)].value();
}

std::int64_t RowWork::count(std::int64_t row) const {
  return journal_ ? journal_->count(row) : std::ssize(*kept_[static_cast<std::size_t>(row)]);
}

double RowWork::tokens_per_second() const {
  return seconds_ > 0 ? static_cast<double>(made_tokens_) / seconds_ : 0;
}

void RowWork::finish() {
  if (journal_) journal_->remove();
}

}  // namespace performer::cli
