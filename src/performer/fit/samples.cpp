#include "performer/fit/samples.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "performer/core/error.h"
#include "performer/core/random.h"
#include "performer/core/sha256.h"

namespace performer::fit {
namespace {

constexpr std::uint8_t kStream = 96;  // of random numbers, apart from those of data and models

// 0 to bound - 1; the bias of the remainder is below 2^-32 here.
std::int64_t below(std::uint32_t high, std::uint32_t low, std::int64_t bound) {
  const auto word = static_cast<std::uint64_t>(high) << 32 | low;
  return static_cast<std::int64_t>(word % static_cast<std::uint64_t>(bound));
}

}  // namespace

Samples::Samples(const data::WholeSequences& text, const data::TokenSpace& space,
                 const Options& options)
    : space_(space),
      options_(options),
      specials_((space.bos >= 0 ? 1 : 0) + (space.eos >= 0 ? 1 : 0)) {
  std::vector<std::int64_t> row;
  for (std::int64_t i = 0; i < text.count(); ++i) {
    row.resize(static_cast<std::size_t>(text.tokens(i)));
    text.read(i, 0, row);
    std::ranges::copy_if(row, std::back_inserter(tokens_),
                         [&](auto t) { return space.is_regular(t); });
    const auto end = static_cast<std::int64_t>(tokens_.size());
    if (space.kind == "protein" && (ends_.empty() || end > ends_.back())) ends_.push_back(end);
  }
  if (space.kind != "protein") ends_ = {static_cast<std::int64_t>(tokens_.size())};
  if (tokens_.size() < 2 || options.length < specials_ + 2) {
    fail(ExitCode::kBadInput, "the text to fit on has {} tokens, and rows are to have {}: too few",
         tokens_.size(), options.length);
  }
}

Samples::Window Samples::window(std::int64_t number, std::int64_t row) const {
  const RandomStream random({options_.seed, static_cast<std::uint32_t>(number), 0, 0}, kStream);
  const auto words = random.block(static_cast<std::uint32_t>(row));
  const auto most = options_.length - specials_;
  // The longer half, the same for all rows of a batch: padding costs as much as text.
  const auto wished = most - below(0, random.block(0)[2], most / 2 + 1);
  const auto at = below(words[0], words[1], tokens());
  const auto next = std::ranges::upper_bound(ends_, at);
  const auto begin = next == ends_.begin() ? 0 : *(next - 1);
  const auto length = std::min(wished, *next - begin);
  return {std::min(at, *next - length), length};
}

models::ModelInput Samples::batch(std::int64_t number, std::int64_t rows, at::Device device) const {
  std::vector<Window> windows;
  std::int64_t longest = 0;
  for (std::int64_t i = 0; i < rows; ++i) {
    windows.push_back(window(number, i));
    longest = std::max(longest, windows.back().length + specials_);
  }
  const at::Tensor tokens =
      at::full({rows, longest}, std::max<std::int64_t>(0, space_.pad), at::kLong);
  const at::Tensor real = at::zeros({rows, longest}, at::kBool);
  for (std::int64_t i = 0; i < rows; ++i) {
    const auto [begin, length] = windows[static_cast<std::size_t>(i)];
    auto* row = tokens.data_ptr<std::int64_t>() + i * longest;
    if (space_.bos >= 0) *row++ = space_.bos;
    row = std::copy_n(tokens_.begin() + begin, length, row);
    if (space_.eos >= 0) *row = space_.eos;
    real.select(0, i).narrow(0, 0, length + specials_).fill_(true);
  }
  return {tokens.to(device), real.to(device)};
}

std::string Samples::content_hash() const {
  Sha256 hash;
  hash.update(std::as_bytes(std::span(tokens_)));
  hash.update(std::as_bytes(std::span(ends_)));
  return hash.finish();
}

}  // namespace performer::fit
