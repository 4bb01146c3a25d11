#include "performer/ops/favor/fingerprint.h"

#include <ATen/ATen.h>

#include <array>
#include <cstring>

#include "performer/kernels/fingerprint.h"
#include "performer/ops/backends/cuda.h"

namespace performer {
namespace {

using kernels::mix;

std::uint64_t bits(double value) {
  std::uint64_t word = 0;
  std::memcpy(&word, &value, sizeof word);
  return word;
}

// A shared tensor [...] is the same as [1, ...].
std::uint64_t mix_shape(std::uint64_t hash, const Tensor& t, std::int64_t trailing) {
  if (!t.defined()) return mix(hash, 0);
  if (t.dim() == trailing) hash = mix(hash, 2);
  for (const auto size : t.sizes()) hash = mix(hash, static_cast<std::uint64_t>(size) + 1);
  return hash;
}

// The bit patterns of a contiguous tensor on the CPU, float32's sign-extended. A streaming step
// reads them each time: plain loops cost a tenth of at::sum.
template <class Word>
std::uint64_t mix_words(std::uint64_t hash, const Tensor& flat) {
  const auto* bytes = static_cast<const char*>(flat.const_data_ptr());
  const auto word_at = [bytes](std::int64_t i) {
    Word word = 0;
    std::memcpy(&word, bytes + i * static_cast<std::int64_t>(sizeof(Word)), sizeof(Word));
    return static_cast<std::uint64_t>(static_cast<std::int64_t>(word));
  };
  const auto count = flat.numel();
  std::uint64_t sum = 0, samples = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += word_at(i);
  const auto stride = kernels::sample_stride(count);
  for (std::int64_t i = 0; i < kernels::sample_count(count); ++i) {
    samples += kernels::sample(i, word_at(i * stride));
  }
  return mix(mix(hash, sum), samples);
}

std::uint64_t mix_values(std::uint64_t hash, const Tensor& t) {
  if (!t.defined()) return hash;
  const Tensor host = t.detach().to(at::kCPU).contiguous();
  return host.scalar_type() == at::kDouble ? mix_words<std::int64_t>(hash, host)
                                           : mix_words<std::int32_t>(hash, host);
}

}  // namespace

Tensor favor_fingerprint(const FavorArgs& args) {
  std::uint64_t hash = mix(0, static_cast<std::uint64_t>(args.map()));
  hash = mix(hash, bits(args.resolved_scale()));
  hash = mix(hash, is_softmax_map(args.map()) ? 0 : bits(args.resolved_eps()));
  if (args.near > 0) hash = mix(hash, static_cast<std::uint64_t>(args.near));
  hash = mix_shape(hash, args.projection, 2);
  hash = mix_shape(hash, args.projection_k, 2);
  hash = mix_shape(hash, args.bias_k, 1);
  const std::array<Tensor, kernels::kFingerprintTensors> tensors{args.projection, args.projection_k,
                                                                 args.bias_k};
  if (Tensor out = backends::fingerprint_cuda(tensors, hash, args.q.device()); out.defined())
    return out;
  for (const Tensor& t : tensors) hash = mix_values(hash, t);
  const Tensor out = at::empty({1}, at::kLong);
  out.data_ptr<std::int64_t>()[0] = static_cast<std::int64_t>(hash);
  return out.to(args.q.device());
}

void check_state_fingerprint(const FavorArgs& args, const Tensor& fingerprint) {
  if (!args.state_fingerprint.defined() || backends::capturing_cuda_graph(args.q.device())) return;
  const auto given = args.state_fingerprint.item<std::int64_t>();
  const auto own = fingerprint.item<std::int64_t>();
  TORCH_CHECK(
      given == own,
      "favor_attention: initial_state was made with another W, feature_map, scale, eps, near, "
      "projection_k or bias_k (fingerprint ",
      given, ", this call has ", own, "); pass the ones it was made with");
}

}  // namespace performer
