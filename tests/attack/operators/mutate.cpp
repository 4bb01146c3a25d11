#include <ATen/ATen.h>

#include <array>
#include <limits>

#include "tests/attack/operators/operator_call.h"

namespace performer::testing {
namespace {

using at::IValue;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Tensor other_shape(const Tensor& t, Draw& draw) {
  if (t.dim() == 0) return t.unsqueeze(0).expand({draw.between(0, 3)});
  const std::int64_t d = draw.between(0, t.dim() - 1);
  switch (draw.between(0, 7)) {
    case 0:
      return t.narrow(d, 0, t.size(d) / 2);
    case 1:
      return t.narrow(d, 0, 0);
    case 2:
      return at::cat({t, t}, d);
    case 3:
      return t.size(d) > 0 ? t.select(d, 0) : t.sum(d);
    case 4:
      return t.unsqueeze(d);
    case 5:
      return t.flatten();
    case 6:
      return t.transpose(d, t.dim() - 1);
    default:
      return at::cat({t, t.narrow(d, 0, std::min<std::int64_t>(1, t.size(d)))}, d);
  }
}

Tensor other_dtype(const Tensor& t, Draw& draw) {
  constexpr std::array kDtypes{at::kFloat, at::kDouble, at::kHalf, at::kBFloat16,     at::kLong,
                               at::kInt,   at::kBool,   at::kByte, at::kComplexFloat, at::kShort};
  return t.to(kDtypes[draw.bits() % kDtypes.size()]);
}

/// The same sizes elsewhere in memory: what kernels must read by strides, or refuse.
Tensor other_layout(const Tensor& t, Draw& draw) {
  const auto last = t.dim() - 1;
  switch (draw.between(0, 8)) {
    case 0:
      return t.numel() > 0 && t.dim() > 0 ? t.narrow(0, 0, 1).expand_as(t) : t;
    case 1:
      return t.dim() > 1 ? t.transpose(0, last).contiguous().transpose(0, last) : t;
    case 2:  // overlapping rows
      return t.dim() > 1 && t.numel() > 0
                 ? t.as_strided(t.sizes(), std::vector<std::int64_t>(t.dim(), 1))
                 : t;
    case 3:
      return t.is_floating_point() ? at::_neg_view(t) : t;
    case 4:
      return t.to(at::kMeta);
    case 5:
      return t.to_sparse();
    case 6:
      return t.is_floating_point() ? t.detach().clone().requires_grad_() : t;
    case 7:
      return t.dim() > 0 ? at::stack({t, t}, -1).select(-1, 0) : t;  // every second element
    default:
      return at::empty(t.sizes(), t.options().dtype(at::kFloat)).to_mkldnn();
  }
}

Tensor other_values(const Tensor& t, Draw& draw) {
  Tensor changed = t.detach().clone(at::MemoryFormat::Contiguous);
  if (changed.numel() == 0) return changed;
  Tensor some = changed.view(-1).narrow(0, draw.between(0, changed.numel() - 1), 1);
  if (draw.one_in(3)) some = changed;
  if (changed.is_floating_point()) {
    const std::vector<double> values{NAN, kInfinity, -kInfinity, 1e30, -1e4, 0, 1e-40};
    return some.fill_(draw.of(values)), changed;
  }
  const std::vector<std::int64_t> values{INT64_MIN, INT64_MAX, INT32_MIN, INT32_MAX, -1,
                                         0,         1,         7,         1'000'000};
  return some.fill_(draw.of(values)), changed;
}

std::string mutate_tensor(IValue& value, OperatorCall& call, Draw& draw) {
  const Tensor t = value.isTensor() ? value.toTensor() : Tensor();
  const auto kind = draw.between(0, 9);
  if (kind == 0 || !t.defined()) {  // another argument of the call
    std::vector<IValue> others;
    for (const auto& other : call.arguments) {
      if (other.isTensor()) others.push_back(other);
    }
    value = others.empty() ? IValue(at::ones({2, 3})) : draw.of(others);
    return "replaced by another argument";
  }
  if (kind == 1) return value = Tensor(), "undefined";
  if (kind < 6) return value = other_shape(t, draw), "other shape";
  if (kind == 6) return value = other_dtype(t, draw), "other dtype";
  if (kind == 7) return value = other_values(t, draw), "other values";
  return value = other_layout(t, draw), "other layout";
}

std::string mutate_word(IValue& value, Draw& draw) {
  const std::vector<std::string> words{"",
                                       "positive",
                                       "relu",
                                       "hyperbolic",
                                       "trigonometric",
                                       "givens",
                                       "hadamard",
                                       "iid",
                                       "chi",
                                       "Positive",
                                       std::string(100'000, 'x'),
                                       std::string("relu\0", 5)};
  value = draw.of(words);
  return "another word";
}

std::string mutate_number(IValue& value, Draw& draw) {
  const std::vector<double> numbers{NAN,    kInfinity, -kInfinity, 0,    -1,
                                    1e-300, 1e300,     1e-3,       1e38, 0.5};
  value = draw.of(numbers);
  return "another number";
}

std::string mutate_integer(IValue& value, Draw& draw) {
  const std::vector<std::int64_t> numbers{INT64_MIN,
                                          INT64_MAX,
                                          INT64_MAX - 7,
                                          std::int64_t{1} << 62,
                                          std::int64_t{1} << 40,
                                          INT32_MAX,
                                          INT32_MIN,
                                          -1,
                                          0,
                                          1,
                                          2,
                                          3,
                                          17,
                                          100};
  value = draw.of(numbers);
  return "another integer";
}

std::string mutate_list(IValue& value, OperatorCall& call, Draw& draw) {
  if (value.isBoolList()) {
    c10::List<bool> flags = value.toBoolList().copy();
    const auto at = static_cast<std::size_t>(draw.between(0, std::ssize(flags) - 1));
    flags.set(at, !flags.get(at));
    return value = flags, "a flag turned";
  }
  c10::List<Tensor> tensors = value.toTensorList().copy();
  if (tensors.empty() || draw.one_in(8))
    return tensors.push_back(at::ones({3})), value = tensors, "longer";
  if (draw.one_in(8)) return tensors.pop_back(), value = tensors, "shorter";
  const auto at = static_cast<std::size_t>(draw.between(0, std::ssize(tensors) - 1));
  IValue item = tensors.get(at);
  const auto said = mutate_tensor(item, call, draw);
  tensors.set(at, item.toTensor());
  return value = tensors, "item " + std::to_string(at) + " " + said;
}

std::string mutate_value(IValue& value, const c10::Type& type, OperatorCall& call, Draw& draw) {
  switch (type.kind()) {
    case c10::TypeKind::TensorType:
      return mutate_tensor(value, call, draw);
    case c10::TypeKind::StringType:
      return mutate_word(value, draw);
    case c10::TypeKind::FloatType:
      return mutate_number(value, draw);
    case c10::TypeKind::BoolType:
      return value = !value.toBool(), "turned";
    case c10::TypeKind::ListType:
      return mutate_list(value, call, draw);
    default:
      return mutate_integer(value, draw);
  }
}

}  // namespace

std::string mutate(OperatorCall& call, Draw& draw) {
  const auto& arguments = call.op.schema().arguments();
  if (arguments.empty()) return "nothing to change";
  const auto at = static_cast<std::size_t>(draw.between(0, std::ssize(arguments) - 1));
  const auto& argument = arguments[at];
  IValue& value = call.arguments[at];
  // A probe runs as long as it is told to, and a dtype is an enumerator.
  const bool fixed = argument.name() == "iterations" || argument.name() == "dtype";
  if (fixed) return argument.name() + " stays";
  const auto* optional = argument.type()->castRaw<c10::OptionalType>();
  if (optional != nullptr && !value.isNone() && draw.one_in(4)) {
    return value = IValue(), argument.name() + " None";
  }
  const c10::Type& type = optional != nullptr ? *optional->getElementType() : *argument.type();
  return argument.name() + " " + mutate_value(value, type, call, draw);
}

}  // namespace performer::testing
