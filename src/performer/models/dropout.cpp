#include "performer/models/dropout.h"

#include <ATen/ATen.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/Parallel.h>

#include <cmath>

namespace performer::models {
namespace {

// SplitMix64's finalizer: a bijection whose every output bit depends on every input bit.
std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15ULL;

// Element i takes half of the 64 bits number i / 2 of SplitMix64 started at the key.
Tensor mask_on_cpu(at::IntArrayRef sizes, const DropoutKey& key) {
  Tensor mask = at::empty(sizes, at::kBool);
  auto* out = mask.mutable_data_ptr<bool>();
  const auto drop_below = static_cast<std::uint64_t>(std::ldexp(key.probability, 32));
  at::parallel_for(0, mask.numel(), 1 << 15, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const auto counter = static_cast<std::uint64_t>(i);
      const std::uint64_t bits = mix(key.key + kGolden * (counter / 2 + 1)) >> (32 * (counter % 2));
      out[i] = (bits & 0xffffffffULL) >= drop_below;
    }
  });
  return mask;
}

Tensor mask_on_cuda(const Tensor& like, const DropoutKey& key) {
  auto generator = at::detail::getCUDAHooks().getNewGenerator(like.device().index());
  generator.set_current_seed(key.key);
  return at::empty(like.sizes(), like.options().dtype(at::kBool))
      .bernoulli_(1 - key.probability, generator);
}

}  // namespace

DropoutKey DropoutKey::child(std::uint64_t part) const {
  return {probability, mix(key ^ mix(kGolden * (part + 1)))};
}

Tensor dropout(const Tensor& x, const DropoutKey& key) {
  if (key.probability == 0) return x;
  const Tensor mask = x.is_cuda() ? mask_on_cuda(x, key) : mask_on_cpu(x.sizes(), key);
  // The product of mask, scale and tensor in one kernel, its own derivative.
  return at::native_dropout_backward(x, mask, 1 / (1 - key.probability));
}

}  // namespace performer::models
