#include "performer/ops/favor_args.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

namespace performer {
namespace {

constexpr std::int64_t kFingerprintSamples = 1024;

// The head count of a parameter whose head axis comes before its last `trailing` axes.
c10::SymInt parameter_heads(const Tensor& p, std::int64_t trailing) {
  return p.dim() == trailing ? c10::SymInt(1) : p.sym_size(0);
}

// splitmix64's finaliser: every input bit reaches every output bit.
std::uint64_t mix(std::uint64_t hash, std::uint64_t word) {
  hash += word + 0x9e3779b97f4a7c15ULL;
  hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9ULL;
  hash = (hash ^ (hash >> 27)) * 0x94d049bb133111ebULL;
  return hash ^ (hash >> 31);
}

std::uint64_t bits(double value) {
  std::uint64_t word = 0;
  std::memcpy(&word, &value, sizeof word);
  return word;
}

// The sum of all bit patterns, modulo 2^64. A streaming step computes it each time: on the CPU by
// plain loops, which cost a tenth of at::sum.
std::uint64_t sum_of_bits(const Tensor& flat) {
  const bool wide = flat.scalar_type() == at::kDouble;
  if (!flat.is_cpu()) {
    const Tensor words = flat.view(wide ? at::kLong : at::kInt);
    return static_cast<std::uint64_t>(words.sum(at::kLong).item<std::int64_t>());
  }
  const auto* bytes = static_cast<const char*>(flat.const_data_ptr());
  std::int64_t sum = 0;
  for (std::int64_t i = 0; i < flat.numel(); ++i) {
    if (wide) {
      std::uint64_t word = 0;
      std::memcpy(&word, bytes + i * 8, 8);
      sum = static_cast<std::int64_t>(static_cast<std::uint64_t>(sum) + word);
    } else {
      std::int32_t word = 0;
      std::memcpy(&word, bytes + i * 4, 4);
      sum += word;
    }
  }
  return static_cast<std::uint64_t>(sum);
}

// Shape, the sum of all bit patterns (the same in any order) and evenly spaced values (which see a
// permutation). A shared tensor [...] is the same as [1, ...].
std::uint64_t mix_tensor(std::uint64_t hash, const Tensor& t, std::int64_t trailing) {
  if (!t.defined()) return mix(hash, 0);
  if (t.dim() == trailing) hash = mix(hash, 2);
  for (const auto size : t.sizes()) hash = mix(hash, static_cast<std::uint64_t>(size) + 1);
  const Tensor flat = t.detach().reshape(-1);
  hash = mix(hash, sum_of_bits(flat));
  const auto stride = flat.numel() / kFingerprintSamples + 1;
  const Tensor sample =
      flat.slice(0, 0, flat.numel(), stride).to(at::kCPU, at::kDouble).contiguous();
  const auto* values = sample.const_data_ptr<double>();
  for (std::int64_t i = 0; i < sample.numel(); ++i) hash = mix(hash, bits(values[i]));
  return hash;
}

}  // namespace

double FavorArgs::resolved_scale() const {
  if (scale) return *scale;
  if (!is_softmax_map(map())) return 1.0;
  return 1.0 / std::sqrt(static_cast<double>(q.size(-1)));
}

double FavorArgs::resolved_eps() const { return eps.value_or(default_eps(map())); }

c10::SymInt FavorArgs::num_features() const {
  const c10::SymInt rows = projection.defined() ? projection.sym_size(-2) : q.sym_size(-1);
  return rows * num_map_features(map(), 1);
}

c10::SymInt FavorArgs::num_states() const {
  return packed() ? cu_seqlens_k.sym_size(0) - 1 : q.sym_size(0);
}

c10::SymInt FavorArgs::state_heads() const {
  const c10::SymInt query_heads = q.sym_size(1);
  const auto has_query_heads = [&](const Tensor& p, std::int64_t trailing) {
    return p.defined() && parameter_heads(p, trailing) == query_heads;
  };
  const bool per_query_head =
      has_query_heads(key_projection(), 2) || has_query_heads(bias_k, 1) ||
      (key_bias.defined() && key_bias.dim() == 3 && key_bias.sym_size(1) == query_heads);
  return per_query_head ? query_heads : k.sym_size(1);
}

at::ScalarType FavorArgs::accumulate() const {
  return q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

Tensor favor_fingerprint(const FavorArgs& args) {
  std::uint64_t hash = mix(0, static_cast<std::uint64_t>(args.map()));
  hash = mix(hash, bits(args.resolved_scale()));
  hash = mix(hash, is_softmax_map(args.map()) ? 0 : bits(args.resolved_eps()));
  hash = mix_tensor(hash, args.projection, 2);
  hash = mix_tensor(hash, args.projection_k, 2);
  hash = mix_tensor(hash, args.bias_k, 1);
  const Tensor out = at::empty({1}, at::kLong);
  out.data_ptr<std::int64_t>()[0] = static_cast<std::int64_t>(hash);
  return out.to(args.q.device());
}

void check_state_fingerprint(const FavorArgs& args, const Tensor& fingerprint) {
  if (!args.state_fingerprint.defined()) return;
  TORCH_CHECK(args.state_fingerprint.item<std::int64_t>() == fingerprint.item<std::int64_t>(),
              "favor_attention: initial_state was made with another W, feature_map, scale, eps, "
              "projection_k or bias_k (fingerprint ",
              args.state_fingerprint.item<std::int64_t>(), ", this call has ",
              fingerprint.item<std::int64_t>(), "); pass the ones it was made with");
}

Tensor empty_in_stride_order(const Tensor& like, c10::SymIntArrayRef sizes) {
  const auto strides = like.sym_strides();
  std::vector<std::int64_t> order(sizes.size());
  std::iota(order.begin(), order.end(), 0);
  // Expanded dimensions (stride 0) say nothing of the order and come first.
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
    const auto& left = strides[static_cast<std::size_t>(a)];
    const auto& right = strides[static_cast<std::size_t>(b)];
    return right != 0 && (left == 0 || left > right);
  });
  std::vector<c10::SymInt> laid_out;
  std::vector<std::int64_t> inverse(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    laid_out.push_back(sizes[static_cast<std::size_t>(order[i])]);
    inverse[static_cast<std::size_t>(order[i])] = static_cast<std::int64_t>(i);
  }
  return at::empty_symint(laid_out, like.options()).permute(inverse);
}

}  // namespace performer
