#include "tests/attack/operators/contract.h"

#include <ATen/ATen.h>

#include <cmath>
#include <string>
#include <vector>

namespace performer::testing {
namespace {

std::string broken_by_inputs(const OperatorCall& a) {
  const Tensor q = a.tensor("q"), k = a.tensor("k"), v = a.tensor("v");
  if (!q.defined() || !k.defined() || !v.defined()) return "q, k or v is missing";
  if (q.dim() != 4 || k.dim() != 4 || v.dim() != 4) return "q, k or v has not four axes";
  if (q.scalar_type() != k.scalar_type() || q.scalar_type() != v.scalar_type()) {
    return "q, k and v have several dtypes";
  }
  if (!q.is_floating_point()) return "q is not of floating point";
  if (q.size(0) != k.size(0) || k.size(0) != v.size(0)) return "batch sizes differ";
  if (k.size(1) != v.size(1) || k.size(1) == 0 || q.size(1) % k.size(1) != 0) {
    return "the heads of k do not divide those of q";
  }
  if (k.size(2) != v.size(2)) return "k and v have several lengths";
  if (q.size(3) != k.size(3)) return "q and k have several widths";
  const bool packed = a.tensor("cu_seqlens_q").defined();
  if (packed != a.tensor("cu_seqlens_k").defined()) return "one cu_seqlens is missing";
  if (packed && q.size(0) != 1) return "packed sequences have a batch";
  if (a.value("causal").toBool() && !packed && q.size(2) != k.size(2)) {
    return "causal with several lengths";
  }
  return {};
}

std::string broken_by_options(const OperatorCall& a) {
  const Tensor q = a.tensor("q"), k = a.tensor("k"), W = a.tensor("projection");
  const FeatureMap map = parse_feature_map(a.value("feature_map").toStringRef());
  if (!W.defined() && is_softmax_map(map)) return "a softmax map has no projection";
  if (W.defined() && (W.dim() < 2 || W.size(-1) != q.size(3))) {
    return "the projection has another width than q";
  }
  if (W.defined() && W.size(-2) == 0 && a.value("near").toInt() == 0) {
    return "there are neither features nor a near field";
  }
  const auto scale = a.number("scale"), eps = a.number("eps");
  if (scale && !(std::isfinite(*scale) && *scale > 0)) return "scale is not positive";
  if (eps && (is_softmax_map(map) || !(std::isfinite(*eps) && *eps >= 0))) return "eps is wrong";
  const Tensor mask = a.tensor("key_mask"), bias = a.tensor("key_bias");
  const std::vector<std::int64_t> keys{k.size(0), k.size(2)};
  if (mask.defined() && (mask.scalar_type() != at::kBool || mask.sizes() != keys)) {
    return "key_mask is not bool of batch and keys";
  }
  if (bias.defined() && !is_softmax_map(map)) return "key_bias stands with a generalised map";
  if (bias.defined() && (bias.dim() < 2 || bias.size(-1) != k.size(2))) {
    return "key_bias has another length than k";
  }
  return {};
}

std::string broken_by_near_state(const OperatorCall& a, std::int64_t near) {
  const Tensor keys = a.tensor("state_near_keys"), values = a.tensor("state_near_values");
  const Tensor bias = a.tensor("state_near_bias"), position = a.tensor("state_near_position");
  const bool any = keys.defined() || values.defined() || bias.defined() || position.defined();
  const Tensor kv = a.tensor("state_kv"), k = a.tensor("k"), v = a.tensor("v");
  if (near == 0 || !kv.defined())
    return any ? "a near field in the state is not for this call" : "";
  if (!keys.defined() || !values.defined() || !bias.defined() || !position.defined()) {
    return "the state has no near field";
  }
  const std::vector<std::int64_t> key_sizes{kv.size(0), k.size(1), 2 * near, k.size(3)};
  const std::vector<std::int64_t> value_sizes{kv.size(0), k.size(1), 2 * near, v.size(3)};
  const std::vector<std::int64_t> bias_sizes{kv.size(0), kv.size(1), 2 * near};
  if (keys.sizes() != key_sizes || values.sizes() != value_sizes || bias.sizes() != bias_sizes) {
    return "the state's near field has other sizes";
  }
  if (position.scalar_type() != at::kLong || position.sizes() != kv.sizes().slice(0, 1)) {
    return "near_position is not int64 of the state's sequences";
  }
  if (position.numel() > 0 && position.min().item<std::int64_t>() < 0) {
    return "near_position is negative";
  }
  return {};
}

std::string broken_by_near_field(const OperatorCall& a) {
  const std::int64_t near = a.value("near").toInt();
  const Tensor q = a.tensor("q"), k = a.tensor("k"), bias = a.tensor("query_bias");
  const FeatureMap map = parse_feature_map(a.value("feature_map").toStringRef());
  if (near < 0 || near > kMaxNear) return "near is out of range";
  if (near > 0 && !is_softmax_map(map)) return "near stands with a generalised map";
  if (near > 0 && q.size(2) != k.size(2)) return "near with several lengths";
  const Tensor cu_q = a.tensor("cu_seqlens_q"), cu_k = a.tensor("cu_seqlens_k");
  if (near > 0 && cu_q.defined() && !cu_q.to(at::kLong).equal(cu_k.to(at::kLong))) {
    return "near with several cu_seqlens";
  }
  if (bias.defined() && (near == 0 || map != FeatureMap::kLoglinear)) {
    return "query_bias stands without loglinear and near";
  }
  if (bias.defined() && (bias.dim() < 2 || bias.size(0) != q.size(0) ||
                         bias.size(-1) != q.size(2) || !bias.is_floating_point())) {
    return "query_bias has other sizes than q";
  }
  return broken_by_near_state(a, near);
}

}  // namespace

std::string broken_contract(const OperatorCall& a, const std::vector<at::IValue>& results) {
  if (const auto broken = broken_by_inputs(a); !broken.empty()) return broken;
  if (const auto broken = broken_by_options(a); !broken.empty()) return broken;
  if (const auto broken = broken_by_near_field(a); !broken.empty()) return broken;
  const Tensor q = a.tensor("q"), out = results.at(0).toTensor();
  const std::vector<std::int64_t> sizes{q.size(0), q.size(1), q.size(2), a.tensor("v").size(3)};
  if (out.sizes() != sizes || out.scalar_type() != q.scalar_type()) {
    return "the output has not the sizes of q and v, and the dtype of q";
  }
  return {};
}

}  // namespace performer::testing
