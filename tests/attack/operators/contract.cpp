#include "tests/attack/operators/contract.h"

#include <ATen/ATen.h>

#include <cmath>
#include <optional>

namespace performer::testing {
namespace {

/// The arguments of a call by their names.
class Named {
 public:
  explicit Named(const OperatorCall& call) : call_(call) {}

  const at::IValue& value(const char* name) const {
    return call_
        .arguments[static_cast<std::size_t>(*call_.op.schema().argumentIndexWithName(name))];
  }
  Tensor tensor(const char* name) const {
    return value(name).isTensor() ? value(name).toTensor() : Tensor();
  }
  std::optional<double> number(const char* name) const { return value(name).toOptional<double>(); }

 private:
  const OperatorCall& call_;
};

std::string broken_by_inputs(const Named& a) {
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

std::string broken_by_options(const Named& a) {
  const Tensor q = a.tensor("q"), k = a.tensor("k"), W = a.tensor("projection");
  const FeatureMap map = parse_feature_map(a.value("feature_map").toStringRef());
  if (!W.defined() && is_softmax_map(map)) return "a softmax map has no projection";
  if (W.defined() && (W.dim() < 2 || W.size(-1) != q.size(3))) {
    return "the projection has another width than q";
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

}  // namespace

std::string broken_contract(const OperatorCall& call, const std::vector<at::IValue>& results) {
  const Named a(call);
  if (const auto broken = broken_by_inputs(a); !broken.empty()) return broken;
  if (const auto broken = broken_by_options(a); !broken.empty()) return broken;
  const Tensor q = a.tensor("q"), out = results.at(0).toTensor();
  const std::vector<std::int64_t> sizes{q.size(0), q.size(1), q.size(2), a.tensor("v").size(3)};
  if (out.sizes() != sizes || out.scalar_type() != q.scalar_type()) {
    return "the output has not the sizes of q and v, and the dtype of q";
  }
  return {};
}

}  // namespace performer::testing
