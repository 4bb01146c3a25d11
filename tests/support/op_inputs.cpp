#include <ATen/CPUGeneratorImpl.h>

#include <cmath>
#include <limits>

#include "tests/support/op_cases.h"

namespace performer::testing {
namespace {

using Sizes = std::vector<std::int64_t>;

class Random {
 public:
  Random(std::uint64_t seed, at::Device device)
      : generator_(at::detail::createCPUGenerator(seed)), device_(device) {}
  Tensor normal(at::IntArrayRef sizes, at::ScalarType dtype) {
    return at::randn(sizes, generator_, at::kDouble).to(dtype).to(device_);
  }
  at::TensorOptions device_options() const { return at::TensorOptions(device_); }
  Tensor uniform(at::IntArrayRef sizes) {
    return at::rand(sizes, generator_, at::kDouble).to(device_);
  }

 private:
  at::Generator generator_;
  at::Device device_;
};

/// Boundaries of packed sequences that differ in length, the second one empty.
Tensor boundaries(std::int64_t total, at::Device device) {
  const std::int64_t third = total / 3;
  return at::tensor(Sizes{0, third, third, std::min(total, third + 1), total}, at::kInt).to(device);
}

Sizes with_heads(const OpCase& c, Sizes sizes) {
  if (c.head_parameters > 0) sizes.insert(sizes.begin(), c.head_parameters);
  return sizes;
}

/// Streams that end after a block and a half, with a block, in the first block, and before the
/// first token, which has nothing behind it.
void set_near_state(const OpCase& c, std::int64_t heads, Random& random, FavorState& state) {
  const auto wide = state.kv.scalar_type();
  const auto N = state.kv.size(0), b = c.near;
  const Sizes ends = {b + (b + 1) / 2, 3 * b, (b + 1) / 2, 0};
  state.near_keys = random.normal({N, c.key_heads, 2 * b, c.dim}, wide) * c.magnitude;
  state.near_values = random.normal({N, c.key_heads, 2 * b, c.values()}, wide);
  state.near_bias = random.normal({N, heads, 2 * b}, wide);
  if (!c.key_bias) state.near_bias.zero_();
  state.near_position = at::empty({N}, random.device_options().dtype(at::kLong));
  for (std::int64_t n = 0; n < N; ++n) {
    const auto end = ends[static_cast<std::size_t>(n) % ends.size()];
    state.near_position[n] = end;
    const auto clear = [&](std::int64_t from, std::int64_t to) {
      state.near_bias[n].slice(-1, from, to).fill_(-std::numeric_limits<double>::infinity());
      state.near_keys[n].slice(1, from, to).zero_();
      state.near_values[n].slice(1, from, to).zero_();
    };
    if (end < b) clear(0, b);
    clear(b + end % b, 2 * b);
    if (end < 2 * b) {  // no key has left the near field yet
      state.kv[n].zero_(), state.normalizer[n].zero_();
      state.log2_scale[n].fill_(kEmptyLog2Scale);
    }
  }
}

FavorState make_state(const OpCase& c, const FavorOptions& o, Random& random) {
  const auto wide = c.dtype == at::kDouble ? at::kDouble : at::kFloat;
  const auto M = num_map_features(c.map, c.features > 0 ? c.features : c.dim);
  const auto N = c.packed ? o.cu_seqlens_q.numel() - 1 : c.batch;
  const bool per_head = c.head_parameters == c.heads && (c.features > 0 || c.key_bias);
  const auto Hs = per_head ? c.heads : c.key_heads;
  FavorState state;
  state.kv = random.normal({N, Hs, M, c.values()}, wide);
  state.normalizer = random.uniform({N, Hs, M}).to(wide) + 0.5;
  const Tensor exponents = (random.uniform({N, Hs, M}) * 8 - 6).floor();
  state.log2_scale = (takes_log_terms(c.map) ? exponents : exponents * 0).to(at::kInt);
  if (c.near > 0) set_near_state(c, Hs, random, state);
  return state;
}

void set_tokens(const OpCase& c, Random& random, Inputs& in) {
  if (c.strided) {
    Tensor packed = random.normal({c.batch, c.length, 3, c.heads, c.dim}, c.dtype);
    packed.narrow(2, 0, 2).mul_(c.magnitude);
    const auto view = [&](std::int64_t n) { return packed.select(2, n).transpose(1, 2); };
    in.q = view(0);
    in.k = view(1);
    in.v = view(2);
  } else {
    in.q = random.normal({c.batch, c.heads, c.length, c.dim}, c.dtype) * c.magnitude;
    in.k = random.normal({c.batch, c.key_heads, c.keys(), c.dim}, c.dtype) * c.magnitude;
    in.v = random.normal({c.batch, c.key_heads, c.keys(), c.values()}, c.dtype);
  }
}

void set_parameters(const OpCase& c, Random& random, Inputs& in) {
  const auto wide = c.dtype == at::kDouble ? at::kDouble : at::kFloat;
  const bool softmax = takes_log_terms(c.map) || c.map == FeatureMap::kTrigonometric;
  // Generalised maps do not scale q and k: their projections keep W x of order 1.
  const double width = softmax ? 1 : 1 / std::sqrt(static_cast<double>(c.dim));
  const auto projection = [&] {
    return random.normal(with_heads(c, {c.features, c.dim}), wide) * width;
  };
  if (c.features > 0) in.W = projection();
  if (c.key_projection) in.options.projection_k = projection();
  if (c.biases) {
    const auto M = num_map_features(c.map, c.features);
    in.options.bias_q = random.normal(with_heads(c, {M}), wide);
    in.options.bias_k = random.normal(with_heads(c, {M}), wide);
  }
  if (c.key_bias) {
    const auto heads = std::max<std::int64_t>(1, c.head_parameters);
    Tensor key_bias = random.normal({c.batch, heads, c.keys()}, wide);
    if (c.keys() > 2) key_bias.select(-1, 2).fill_(-std::numeric_limits<double>::infinity());
    in.options.key_bias = key_bias;
  }
  if (c.query_bias) {
    const auto heads = std::max<std::int64_t>(1, c.head_parameters);
    in.options.query_bias = random.normal({c.batch, heads, c.length}, wide);
  }
}

}  // namespace

Inputs make_inputs(const OpCase& c, std::uint64_t seed, at::Device device) {
  Random random(seed * 1000 + 7, device);
  Inputs in;
  FavorOptions& o = in.options;
  o.feature_map = c.map;
  o.causality = c.causality;
  o.renormalize = c.renormalize;
  o.near = c.near;
  set_tokens(c, random, in);
  set_parameters(c, random, in);
  if (c.mask) {
    o.key_mask = random.uniform({c.batch, c.keys()}).gt(0.25);
    if (c.batch > 1) o.key_mask[c.batch - 1].fill_(false);
  }
  if (c.packed) {
    o.cu_seqlens_q = boundaries(c.length, device);
    o.cu_seqlens_k = boundaries(c.keys(), device);
  }
  if (c.initial_state) o.initial_state = make_state(c, o, random);
  return in;
}

}  // namespace performer::testing
