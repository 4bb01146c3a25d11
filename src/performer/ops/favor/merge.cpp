#include "performer/ops/favor/merge.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "performer/ops/backends/composed/scaled_sum.h"
#include "performer/ops/checks.h"
#include "performer/ops/favor/state_tensors.h"
#include "performer/ops/signature.h"

namespace performer {
namespace {

constexpr const char* kMerge = "merge_states";

void check_pair(const Tensor& kv, const Tensor& later) {
  TORCH_CHECK(kv.sym_sizes() == later.sym_sizes(), kMerge,
              ": kv of both states must have one shape, got ", kv.sym_sizes(), " and later_kv ",
              later.sym_sizes());
  TORCH_CHECK(kv.scalar_type() == later.scalar_type(), kMerge,
              ": kv of both states must have one dtype, got ", kv.scalar_type(), " and later_kv ",
              later.scalar_type());
  TORCH_CHECK(kv.device() == later.device(), kMerge,
              ": kv of both states must be on one device, got ", kv.device(), " and later_kv ",
              later.device());
}

std::tuple<Tensor, Tensor, Tensor> merge_op(const Tensor& kv, const Tensor& normalizer,
                                            const Tensor& log2_scale, const Tensor& later_kv,
                                            const Tensor& later_normalizer,
                                            const Tensor& later_log2_scale) {
  check_state_tensors(kMerge, "", {kv, normalizer, log2_scale});
  check_state_tensors(kMerge, "later_", {later_kv, later_normalizer, later_log2_scale});
  check_pair(kv, later_kv);
  const Tensor scale = log2_scale.to(kv.scalar_type());
  const Tensor later_scale = later_log2_scale.to(kv.scalar_type());
  const auto merged = composed::merge({kv, scale}, {later_kv, later_scale});
  const auto sums = composed::merge({normalizer.unsqueeze(-1), scale},
                                    {later_normalizer.unsqueeze(-1), later_scale});
  return {merged.sum, sums.sum.squeeze(-1), merged.log2.to(at::kInt)};
}

FavorState merge_sums(const FavorState& earlier, const FavorState& later) {
  const auto [kv, normalizer, log2_scale] =
      merge_op(earlier.kv, earlier.normalizer, earlier.log2_scale, later.kv, later.normalizer,
               later.log2_scale);
  return {kv, normalizer, log2_scale};
}

void check_near_fields(const FavorState& earlier, const FavorState& later, const Tensor& W) {
  TORCH_CHECK(earlier.near() == later.near(), kMerge,
              ": the states must have the same near field, got blocks of ", earlier.near(), " and ",
              later.near(), " tokens (0: none)");
  const auto check = [&](const Tensor& one, const Tensor& other, const char* name) {
    check_defined(kMerge, {name, one});
    check_defined(kMerge, {name, other});
    TORCH_CHECK(one.sym_sizes() == other.sym_sizes() && one.scalar_type() == other.scalar_type() &&
                    one.device() == other.device(),
                kMerge, ": ", name, " of both states must agree in shape, dtype and device, got ",
                one.scalar_type(), " ", one.sym_sizes(), " on ", one.device(), " and ",
                other.scalar_type(), " ", other.sym_sizes(), " on ", other.device());
  };
  check(earlier.near_keys, later.near_keys, "near_keys");
  check(earlier.near_values, later.near_values, "near_values");
  check(earlier.near_bias, later.near_bias, "near_bias");
  check(earlier.near_position, later.near_position, "near_position");
  TORCH_CHECK(W.defined(), kMerge,
              ": states with a near field need W (and the map, scale, projection_k and bias_k they "
              "were made with): keys that leave the near field become features");
  if (!has_values(earlier.near_position)) return;
  check_position(kMerge, "near_position", earlier.near_position);
  const Tensor parts = earlier.near_position.remainder(earlier.near());
  TORCH_CHECK(!parts.any().item<bool>(), kMerge, ": the earlier state must end with a whole block of ",
              earlier.near(), " tokens, got near_position ",
              earlier.near_position.masked_select(parts.ne(0)).select(0, 0).item<std::int64_t>());
}

// The sums of the first block of a near field.
FavorState sums_of_block(const FavorState& state, const Tensor& W, const FavorOptions& options) {
  const auto b = state.near();
  FavorOptions of_block;
  of_block.feature_map = options.feature_map, of_block.scale = options.scale;
  of_block.bias_k = options.bias_k;
  of_block.key_bias = state.near_bias.slice(2, 0, b);
  const Tensor& W_k = options.projection_k.defined() ? options.projection_k : W;
  const Tensor k = state.near_keys.slice(2, 0, b), v = state.near_values.slice(2, 0, b);
  const Tensor q = at::zeros_symint({k.sym_size(0), state.near_bias.sym_size(1), 1, k.sym_size(3)},
                                    k.options());
  return favor_attention_with_state(q, k, v, W_k, of_block).second;
}

FavorState merge_near(const FavorState& earlier, const FavorState& later, const Tensor& W,
                      const FavorOptions& options) {
  check_near_fields(earlier, later, W);
  const auto b = earlier.near();
  // Where `later` fills a block, the last one of `earlier` is in no near field any more.
  const Tensor leaves = later.near_position.ge(b);
  const auto where_leaves = [&](const Tensor& yes, const Tensor& no) {
    std::vector<std::int64_t> shape(static_cast<std::size_t>(no.dim()), 1);
    shape[0] = -1;
    return at::where(leaves.view(shape), yes, no);
  };
  const auto either = [&](const Tensor& first, const Tensor& second) {
    return where_leaves(second, at::cat({first.slice(2, 0, b), second.slice(2, b)}, 2));
  };
  FavorState sums = earlier;
  if (W.sym_size(-2) != 0) {
    const FavorState block = sums_of_block(earlier, W, options);
    const FavorState more = merge_sums(earlier, block);
    sums.kv = where_leaves(more.kv, earlier.kv);
    sums.normalizer = where_leaves(more.normalizer, earlier.normalizer);
    sums.log2_scale = where_leaves(more.log2_scale, earlier.log2_scale);
    }
  FavorState merged = merge_sums(sums, later);
  merged.near_keys = either(earlier.near_keys, later.near_keys);
  merged.near_values = either(earlier.near_values, later.near_values);
  merged.near_bias = either(earlier.near_bias, later.near_bias);
  merged.near_position = earlier.near_position + later.near_position;
  return merged;
}

void check_fingerprints(const FavorState& earlier, const FavorState& later) {
  if (!earlier.fingerprint.defined() || !later.fingerprint.defined()) return;
  for (const Tensor& f : {earlier.fingerprint, later.fingerprint}) {
    TORCH_CHECK(f.scalar_type() == at::kLong && f.numel() == 1, kMerge,
                ": fingerprint must be int64 [1], got ", f.scalar_type(), " ", f.sizes());
  }
  const auto one = earlier.fingerprint.item<std::int64_t>();
  const auto other = later.fingerprint.item<std::int64_t>();
  TORCH_CHECK(one == other, kMerge,
              ": the states were made with different projections, maps or scales (fingerprints ",
              one, " and ", other, ")");
}

using Results = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor>;

Results merge_near_op(at::TensorList earlier, at::TensorList later, const Tensor& W,
                      c10::string_view feature_map, std::optional<double> scale,
                      const OptionalTensor& projection_k, const OptionalTensor& bias_k) {
  const auto state_of = [](at::TensorList t, const char* name) {
    TORCH_CHECK(t.size() == 7, kMerge, ": ", name, " must be the seven tensors of a state, got ",
                t.size());
    FavorState state{t[0], t[1], t[2]};
    state.near_keys = t[3], state.near_values = t[4];
    state.near_bias = t[5], state.near_position = t[6];
    TORCH_CHECK(t[3].dim() == 4 && t[5].dim() == 3, kMerge, ": ", name,
                ".near_keys must be [N, heads, 2 near, dim], got ", t[3].sym_sizes());
    return state;
  };
  FavorOptions options;
  options.feature_map = parse_feature_map(std::string_view(feature_map.data(), feature_map.size()));
  options.scale = scale;
  options.projection_k = projection_k.value_or(Tensor());
  options.bias_k = bias_k.value_or(Tensor());
  const FavorState m = merge_near(state_of(earlier, "earlier"), state_of(later, "later"), W, options);
  return {m.kv,        m.normalizer,  m.log2_scale, m.near_keys,
          m.near_values, m.near_bias, m.near_position};
}

}  // namespace

FavorState merge_states(const FavorState& earlier, const FavorState& later, const Tensor& W,
                        const FavorOptions& options) {
  check_fingerprints(earlier, later);
  FavorState merged = earlier.has_near() || later.has_near() ? merge_near(earlier, later, W, options)
                                                             : merge_sums(earlier, later);
  merged.fingerprint = earlier.fingerprint.defined() ? earlier.fingerprint : later.fingerprint;
  return merged;
}

TORCH_LIBRARY_FRAGMENT(performer, m) {
  m.def(
      "merge_states(Tensor kv, Tensor normalizer, Tensor log2_scale, Tensor later_kv, "
      "Tensor later_normalizer, Tensor later_log2_scale) -> (Tensor, Tensor, Tensor)",
      &merge_op);
  m.def(
      "merge_near_states(Tensor[] earlier, Tensor[] later, Tensor projection, str feature_map, "
      "float? scale, Tensor? projection_k, Tensor? bias_k) -> "
      "(Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
      &merge_near_op);
}

}  // namespace performer
