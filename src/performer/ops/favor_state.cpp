#include "performer/ops/favor_state.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include <tuple>

#include "performer/ops/composed/scaled_sum.h"

namespace performer {
namespace {

void check_pair(const Tensor& earlier, const Tensor& later, const char* name) {
  TORCH_CHECK(earlier.sym_sizes() == later.sym_sizes(), "merge_states: ", name,
              " of both states must have one shape, got ", earlier.sym_sizes(), " and ",
              later.sym_sizes());
  TORCH_CHECK(earlier.scalar_type() == later.scalar_type(), "merge_states: ", name,
              " of both states must have one dtype, got ", earlier.scalar_type(), " and ",
              later.scalar_type());
  TORCH_CHECK(earlier.device() == later.device(), "merge_states: ", name,
              " of both states must be on one device, got ", earlier.device(), " and ",
              later.device());
}

void check_state_shapes(const Tensor& kv, const Tensor& normalizer, const Tensor& log2_scale) {
  TORCH_CHECK(kv.dim() == 4 && kv.is_floating_point(),
              "merge_states: kv must be floating point [N, heads, features, value dim], got ",
              kv.scalar_type(), " ", kv.sym_sizes());
  const auto sums = kv.sym_sizes().slice(0, 3);
  TORCH_CHECK(normalizer.sym_sizes() == sums && normalizer.scalar_type() == kv.scalar_type(),
              "merge_states: normalizer must be ", kv.scalar_type(), " ", sums, ", got ",
              normalizer.scalar_type(), " ", normalizer.sym_sizes());
  TORCH_CHECK(log2_scale.sym_sizes() == sums && log2_scale.scalar_type() == at::kInt,
              "merge_states: log2_scale must be int32 ", sums, ", got ", log2_scale.scalar_type(),
              " ", log2_scale.sym_sizes());
}

std::tuple<Tensor, Tensor, Tensor> merge_op(const Tensor& kv, const Tensor& normalizer,
                                            const Tensor& log2_scale, const Tensor& later_kv,
                                            const Tensor& later_normalizer,
                                            const Tensor& later_log2_scale) {
  check_state_shapes(kv, normalizer, log2_scale);
  check_pair(kv, later_kv, "kv");
  check_pair(normalizer, later_normalizer, "normalizer");
  check_pair(log2_scale, later_log2_scale, "log2_scale");
  const Tensor scale = log2_scale.to(kv.scalar_type());
  const Tensor later_scale = later_log2_scale.to(kv.scalar_type());
  const auto merged = composed::merge({kv, scale}, {later_kv, later_scale});
  const auto sums = composed::merge({normalizer.unsqueeze(-1), scale},
                                    {later_normalizer.unsqueeze(-1), later_scale});
  return {merged.sum, sums.sum.squeeze(-1), merged.log2.to(at::kInt)};
}

}  // namespace

std::int64_t FavorState::nbytes() const {
  std::int64_t total = 0;
  for (const auto* t : {&kv, &normalizer, &log2_scale, &fingerprint}) {
    if (t->defined()) total += static_cast<std::int64_t>(t->nbytes());
  }
  return total;
}

FavorState FavorState::reorder(const Tensor& index) const {
  return {kv.index_select(0, index), normalizer.index_select(0, index),
          log2_scale.index_select(0, index), fingerprint};
}

FavorState FavorState::to(at::Device device) const {
  return {kv.to(device), normalizer.to(device), log2_scale.to(device),
          fingerprint.defined() ? fingerprint.to(device) : fingerprint};
}

FavorState merge_states(const FavorState& earlier, const FavorState& later) {
  TORCH_CHECK(!earlier.fingerprint.defined() || !later.fingerprint.defined() ||
                  earlier.fingerprint.equal(later.fingerprint),
              "merge_states: the states were made with different projections, maps or scales "
              "(fingerprints ",
              earlier.fingerprint.item<std::int64_t>(), " and ",
              later.fingerprint.item<std::int64_t>(), ")");
  const auto [kv, normalizer, log2_scale] =
      merge_op(earlier.kv, earlier.normalizer, earlier.log2_scale, later.kv, later.normalizer,
               later.log2_scale);
  return {kv, normalizer, log2_scale,
          earlier.fingerprint.defined() ? earlier.fingerprint : later.fingerprint};
}

TORCH_LIBRARY_FRAGMENT(performer, m) {
  m.def(
      "merge_states(Tensor kv, Tensor normalizer, Tensor log2_scale, Tensor later_kv, "
      "Tensor later_normalizer, Tensor later_log2_scale) -> (Tensor, Tensor, Tensor)",
      &merge_op);
}

}  // namespace performer
