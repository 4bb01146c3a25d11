#include "tests/support/argument_rules.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <string>
#include <string_view>

namespace performer::testing {
namespace {

using at::Tensor;
using c10::IValue;
using Names = std::span<const std::string_view>;
using std::string_view_literals::operator""sv;

// Shared by all heads where the head axis is 1 or missing. float32 or float64 whatever q is.
constexpr std::array kParameters{"projection"sv, "projection_k"sv, "bias_q"sv, "bias_k"sv};
// Cast to the dtype of the arithmetic.
constexpr std::array kAnyFloat{"key_bias"sv, "query_bias"sv, "grad_out"sv};
// Positions and offsets are int64 or int32.
constexpr std::array kIntegers{"cu_seqlens_q"sv, "cu_seqlens_k"sv, "rows"sv, "columns"sv};
// A sum to which nothing adds nothing.
constexpr std::array kZeroByDefault{
    "bias"sv,    "bias_q"sv,          "bias_k"sv,         "key_bias"sv,         "query_bias"sv,
    "grad_kv"sv, "grad_normalizer"sv, "grad_near_keys"sv, "grad_near_values"sv, "grad_near_bias"sv};
// [B, heads, L]
constexpr std::array kTokenBiases{"key_bias"sv, "query_bias"sv};
// What is derived from the others (out), or only limits or guards the call.
constexpr std::array kWithoutEffect{"out"sv, "max_seqlen_q"sv, "max_seqlen_k"sv,
                                    "state_fingerprint"sv};

bool is_in(Names names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool is_absent(const IValue& value) {
  return value.isNone() || (value.isTensor() && !value.toTensor().defined());
}

std::int64_t size_of(const ArgumentOf& a, const std::string& tensor, std::int64_t axis) {
  return a.other(tensor).toTensor().size(axis);
}

// The width of the queries, which a state's near field has, too.
std::int64_t query_width(const ArgumentOf& a) {
  const IValue state = a.other("earlier");
  return state.isNone() ? size_of(a, "q", 3) : state.toTensorVector()[3].size(3);
}

// The default that stands for an argument that is not given.
std::optional<IValue> default_of(const ArgumentOf& a) {
  const std::string& name = a.name();
  if (is_in(kWithoutEffect, name)) return a.value();
  if (is_in(kZeroByDefault, name)) return at::zeros_like(a.value().toTensor());
  if (name == "key_mask") return at::ones_like(a.value().toTensor());
  if (name == "projection_k") return a.other("projection");
  if (name == "rows") return at::arange(size_of(a, "q", 2));
  if (name == "columns") return at::arange(size_of(a, "k", 2));
  if (name == "pool") return std::int64_t{1};
  if (name == "eps") return 1e-3;
  const IValue map = a.other("feature_map");
  const bool is_softmax = map.isNone() || (map != "relu" && map != "elu1");
  if (name == "scale") {
    return is_softmax ? 1.0 / std::sqrt(static_cast<double>(query_width(a))) : 1.0;
  }
  if (name == "projection" && !is_softmax) {  // the features of q or x themselves
    return at::eye(size_of(a, a.other("x").isNone() ? "q" : "x", -1));
  }
  return std::nullopt;
}

// Heads that share a parameter, [1, ...] or [...], or a bias of tokens, [B, 1, L] or [B, L].
std::optional<IValue> with_all_heads(const ArgumentOf& a, const Tensor& changed) {
  const std::string& name = a.name();
  const bool of_tokens = is_in(kTokenBiases, name);
  if (!of_tokens && !is_in(kParameters, name)) return std::nullopt;
  const std::int64_t axis = of_tokens ? 1 : 0;
  const std::int64_t rank = name == "bias_q" || name == "bias_k" ? 2 : 3;
  const auto headed = [&](const Tensor& t) { return t.dim() + 1 == rank ? t.unsqueeze(axis) : t; };
  const Tensor good = headed(a.value().toTensor()), shared = headed(changed);
  if (good.dim() != rank || shared.dim() != rank || shared.size(axis) != 1) return std::nullopt;
  auto sizes = shared.sizes().vec();
  sizes[static_cast<std::size_t>(axis)] = good.size(axis);
  if (good.sizes() != sizes) return std::nullopt;
  return shared.expand(sizes).reshape_as(a.value().toTensor());
}

std::optional<IValue> in_usual_dtype(const ArgumentOf& a, const Tensor& changed) {
  const at::ScalarType usual = a.value().toTensor().scalar_type(), given = changed.scalar_type();
  const bool wide = given == at::kFloat || given == at::kDouble;
  const bool narrow = given == at::kHalf || given == at::kBFloat16;
  const bool integral = given == at::kInt || given == at::kLong;
  if ((wide && is_in(kParameters, a.name())) || ((wide || narrow) && is_in(kAnyFloat, a.name())) ||
      (integral && is_in(kIntegers, a.name()))) {
    return changed.to(usual);
  }
  return std::nullopt;
}

// The one tensor that was changed; of a list, too.
Tensor changed_tensor(const IValue& good, const IValue& value) {
  if (value.isTensor()) return value.toTensor();
  const auto before = good.toTensorVector(), after = value.toTensorVector();
  for (std::size_t i = 0; i < after.size(); ++i) {
    if (!after[i].is_same(before[i])) return after[i];
  }
  return {};
}

}  // namespace

IValue ArgumentOf::other(const std::string& other_name) const {
  const auto found = schema.argumentIndexWithName(other_name);
  return found ? good[static_cast<std::size_t>(*found)] : IValue();
}

std::optional<IValue> plain_form(const ArgumentOf& a, const IValue& changed) {
  if (a.value().isNone()) return std::nullopt;
  if (a.name() == "needs") return a.value();  // gradients do not depend on which are asked for
  if (is_absent(changed)) return default_of(a);
  if (!changed.isTensor() || changed.toTensor().layout() != at::kStrided ||
      changed.toTensor().device() != a.value().toTensor().device()) {
    return std::nullopt;
  }
  const Tensor t = changed.toTensor(), good = a.value().toTensor();
  if (t.scalar_type() == good.scalar_type()) return with_all_heads(a, t);
  return t.sizes() == good.sizes() ? in_usual_dtype(a, t) : std::nullopt;
}

bool is_right_value(const ArgumentOf& a, const Variation& v) {
  if (v.value.isBool()) return true;
  if (v.value.isDouble()) {
    const double number = v.value.toDouble();
    return std::isfinite(number) && (number > 0 || (number == 0 && a.name() == "eps"));
  }
  if (!v.value.isTensor() && !v.value.isTensorList()) return false;
  const Tensor t = changed_tensor(a.value(), v.value);
  const std::string_view name = a.name();
  const bool in_state = name == "earlier" || name == "later";  // scales and positions in a list
  // Of the numbers tried, the others are out of range.
  if (name.ends_with("log2_scale") || (in_state && t.scalar_type() == at::kInt)) {
    return t.abs().max().item<int>() <= 1000;
  }
  if (name.ends_with("near_position") || (in_state && t.scalar_type() == at::kLong)) {
    return t.min().item<std::int64_t>() >= 0 && t.max().item<std::int64_t>() <= 1000;
  }
  return (t.is_floating_point() || t.scalar_type() == at::kBool) && a.name() != "a";
}

bool is_moderate(const Variation& v) {
  constexpr std::array kExtremes{"nan"sv, "inf"sv, "-inf"sv, "huge"sv, "1e+300"sv};
  const std::string_view name = v.name;
  return !is_in(kExtremes, name.substr(name.find(']') + 1));  // of a list: "[0]nan"
}

}  // namespace performer::testing
