#include "performer/ops/favor/merge.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "performer/ops/backends/composed/scaled_sum.h"
#include "performer/ops/checks.h"
#include "performer/ops/favor/arguments.h"
#include "performer/ops/favor/merge_checks.h"
#include "performer/ops/favor/state_tensors.h"
#include "performer/ops/signature.h"

namespace performer {
namespace {

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

// The sums of the first block of a near field.
FavorState sums_of_block(const FavorState& state, const Tensor& W, const FavorOptions& options) {
  FavorArgs block = leaving_block(state, W, options);
  block.near = 0;
  const Tensor no_query = block.q.narrow(2, 0, 0);
  return favor_attention_with_state(no_query, block.k, block.v, W, favor_options(block)).second;
}

FavorState merge_near(const FavorState& earlier, const FavorState& later, const Tensor& W,
                      const FavorOptions& options) {
  check_near_merge(earlier, later, W, options);
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
  if (earlier.kv.sym_size(2) != 0) {
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

using Results = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor>;

Results merge_near_op(at::TensorList earlier, at::TensorList later, const Tensor& W,
                      c10::string_view feature_map, std::optional<double> scale,
                      const OptionalTensor& projection_k, const OptionalTensor& bias_k) {
  const auto state_of = [](at::TensorList t, const char* name) {
    TORCH_CHECK(t.size() == 7, kMerge, ": ", name, " must be the seven tensors of a state, got ",
                t.size());
    check_defined(kMerge, {(std::string(name) + ".near_keys").c_str(), t[3]});
    FavorState state{t[0], t[1], t[2]};
    state.near_keys = t[3], state.near_values = t[4];
    state.near_bias = t[5], state.near_position = t[6];
    return state;
  };
  FavorOptions options;
  options.feature_map = parse_feature_map(std::string_view(feature_map.data(), feature_map.size()));
  options.scale = scale;
  options.projection_k = projection_k.value_or(Tensor());
  options.bias_k = bias_k.value_or(Tensor());
  const FavorState m =
      merge_near(state_of(earlier, "earlier"), state_of(later, "later"), W, options);
  return {m.kv,          m.normalizer, m.log2_scale,   m.near_keys,
          m.near_values, m.near_bias,  m.near_position};
}

}  // namespace

FavorState merge_states(const FavorState& earlier, const FavorState& later, const Tensor& W,
                        const FavorOptions& options) {
  check_fingerprints(earlier, later);
  FavorState merged = earlier.has_near() || later.has_near()
                          ? merge_near(earlier, later, W, options)
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
