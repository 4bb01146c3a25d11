#include "performer/infer/sequence_batch.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <new>
#include <numeric>
#include <string_view>

namespace performer::infer {
namespace {

// Whether a failure is one of memory, which fewer rows may cure.
bool is_memory(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return true;
  if (dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr) return true;
  return std::string_view(error.what()).find("can't allocate memory") != std::string_view::npos;
}

}  // namespace

std::vector<std::vector<std::int64_t>> plan_batches(const std::vector<std::int64_t>& lengths,
                                                    std::int64_t tokens) {
  std::vector<std::int64_t> order(lengths.size());
  std::iota(order.begin(), order.end(), std::int64_t{0});
  const auto length = [&](std::int64_t i) { return lengths[static_cast<std::size_t>(i)]; };
  std::ranges::stable_sort(order,
                           [&](std::int64_t a, std::int64_t b) { return length(a) > length(b); });
  std::vector<std::vector<std::int64_t>> batches;
  for (const std::int64_t i : order) {
    const bool fits =
        !batches.empty() && length(batches.back().front()) <=
                                tokens / (static_cast<std::int64_t>(batches.back().size()) + 1);
    if (!fits) batches.emplace_back();
    batches.back().push_back(i);
  }
  return batches;
}

models::ModelInput SequenceBatch::input(at::Device device) const {
  models::ModelInput input{tokens.to(device), {}};
  if (!real.all().item<bool>()) input.key_mask = real.to(device);
  return input;
}

SequenceBatch read_batch(const data::WholeSequences& sequences, const data::TokenSpace& space,
                         std::span<const std::int64_t> batch, std::int64_t length) {
  const auto count_of = [&](std::int64_t i) {
    const auto all = sequences.tokens(i);
    return length > 0 ? std::min(all, length) : all;
  };
  std::int64_t longest = 1;
  for (const auto i : batch) longest = std::max(longest, count_of(i));
  const auto rows = static_cast<std::int64_t>(batch.size());
  const at::Tensor ids = at::full({rows, longest}, std::max<std::int64_t>(0, space.pad), at::kLong);
  const at::Tensor real = at::zeros({rows, longest}, at::kBool), regular = at::zeros_like(real);
  const bool other_start = space.start >= 0 && space.start != space.bos && space.kind != "hf";
  for (std::int64_t b = 0; b < rows; ++b) {
    const auto i = batch[static_cast<std::size_t>(b)];
    const auto count = count_of(i);
    auto* row = ids.data_ptr<std::int64_t>() + b * longest;
    sequences.read(i, 0, {row, static_cast<std::size_t>(count)});
    if (other_start && count > 0 && row[0] == space.bos) row[0] = space.start;
    real.select(0, b).narrow(0, 0, count).fill_(true);
    auto* marks = regular.data_ptr<bool>() + b * longest;
    for (std::int64_t t = 0; t < count; ++t) marks[t] = space.is_regular(row[t]);
  }
  return {ids, real, regular};
}

void run_in_halves(std::span<const std::int64_t> rows, const RunRows& run,
                   const std::function<void(std::int64_t row)>& too_large) {
  try {
    return run(rows);
  } catch (const std::exception& error) {
    if (!is_memory(error)) throw;
    if (rows.size() == 1) return too_large(rows.front());
  }
  const auto half = rows.size() / 2;
  run_in_halves(rows.first(half), run, too_large);
  run_in_halves(rows.subspan(half), run, too_large);
}

}  // namespace performer::infer
