#include "performer/run/data_identity.h"

#include <ATen/Functions.h>
#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "performer/core/sha256.h"

namespace performer::run {
namespace {

constexpr std::int64_t kMostRows = 2048, kLeastRows = 16, kTokens = 1 << 21;

void add(Sha256& hash, const at::Tensor& tensor) {
  if (!tensor.defined()) return;
  const auto whole = tensor.contiguous();
  hash.update(std::span(static_cast<const std::byte*>(whole.const_data_ptr()), whole.nbytes()));
}

}  // namespace

std::string DataIdentity::text() const {
  return fmt::format("{} samples with hash {}…", samples, sha256.substr(0, 8));
}

DataIdentity identify(const data::BatchStream& rows) {
  const auto size = rows.size();
  const auto length = std::max<std::int64_t>(rows.dataset().length(), 1);
  const auto wanted = std::clamp(kTokens / length, kLeastRows, kMostRows);
  const auto count = std::min(size, wanted);
  Sha256 hash;
  for (std::int64_t i = 0; i < count; ++i) {
    // Of count parts of the data the middle: i * size might not fit.
    const auto step = size / count, rest = size % count;
    const auto batch = rows.batch(i * step + std::min(i, rest) + step / 2, 1);
    for (const auto& tensor : {batch.tokens, batch.targets, batch.tokens_b}) add(hash, tensor);
  }
  return {size, hash.finish()};
}

}  // namespace performer::run
