#include "tests/support/argument_variations.h"

#include <ATen/ATen.h>

#include <limits>
#include <set>

namespace performer::testing {
namespace {

using at::Tensor;
using c10::IValue;

class Variations {
 public:
  void add(const std::string& name, Change change, const IValue& value) {
    list_.push_back({name, change, value, {}});
  }
  // The numbers of the right call, laid out otherwise.
  void add_strides(const std::string& name, const Tensor& t) {
    list_.push_back({name, Change::kLayout, t, {}});
  }
  // Elements in one place: other numbers.
  void add_layout(const std::string& name, const Tensor& t) {
    list_.push_back({name, Change::kLayout, t, t.contiguous().clone()});
  }
  std::vector<Variation> take() { return std::move(list_); }

 private:
  std::vector<Variation> list_;
};

// The same rows again, as many as asked for.
Tensor resized(const Tensor& t, std::int64_t dim, std::int64_t size) {
  if (t.size(dim) == 0) {
    auto sizes = t.sizes().vec();
    sizes[static_cast<std::size_t>(dim)] = size;
    return at::zeros(sizes, t.options());
  }
  return t.index_select(dim, at::arange(size).remainder(t.size(dim)));
}

void add_sizes(Variations& list, const Tensor& t) {
  for (std::int64_t dim = 0; dim < t.dim(); ++dim) {
    const std::int64_t size = t.size(dim);
    for (const std::int64_t other : std::set<std::int64_t>{size - 1, size + 1, 1, 0}) {
      if (other == size || other < 0) continue;
      list.add("size" + std::to_string(dim) + "=" + std::to_string(other), Change::kShape,
               resized(t, dim, other));
    }
  }
  list.add("rank+1", Change::kShape, t.unsqueeze(0));
  list.add("number", Change::kShape, at::zeros({}, t.options()));
  if (t.dim() > 0 && t.size(0) > 0) list.add("rank-1", Change::kShape, t.select(0, 0));
  if (t.dim() > 1) list.add("flat", Change::kShape, t.flatten());
}

void add_kinds(Variations& list, const Tensor& t) {
  for (const auto dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kInt, at::kLong,
                           at::kBool, at::kByte, at::kComplexFloat}) {
    if (dtype == t.scalar_type()) continue;
    list.add(c10::toString(dtype), Change::kShape, t.to(dtype));
  }
  list.add("meta", Change::kShape, t.to(at::kMeta));
  list.add("undefined", Change::kShape, Tensor());
  if (t.dim() > 0 && t.numel() > 0) list.add("sparse", Change::kShape, t.to_sparse());
}

// Strides of 1 in the last two axes: neighbours share elements.
Tensor overlapping(const Tensor& t) {
  auto strides = t.contiguous().strides().vec();
  for (std::size_t i = strides.size() - std::min<std::size_t>(2, strides.size());
       i < strides.size(); ++i) {
    strides[i] = 1;
  }
  return t.contiguous().clone().as_strided(t.sizes(), strides);
}

void add_layouts(Variations& list, const Tensor& t) {
  if (t.dim() == 0 || t.numel() == 0) return;
  list.add_strides("gaps", at::stack({t, t}, -1).select(-1, 0));
  const Tensor padded = at::cat({t.flatten().narrow(0, 0, 1), t.flatten()});
  list.add_strides("offset", padded.narrow(0, 1, t.numel()).view(t.sizes()));
  if (t.dim() > 1) {
    list.add_strides("transposed", t.transpose(-1, -2).contiguous().transpose(-1, -2));
    list.add_strides("outer", t.transpose(0, 1).contiguous().transpose(0, 1));
  }
  list.add_layout("overlapping", overlapping(t));
  for (std::int64_t dim = 0; dim < t.dim(); ++dim) {
    list.add_layout("expanded" + std::to_string(dim), t.narrow(dim, 0, 1).expand_as(t));
  }
}

template <class T>
void add_fill(Variations& list, const Tensor& t, const char* name, T value) {
  list.add(name, Change::kValue, at::full_like(t.contiguous(), value));
}

void add_values(Variations& list, const Tensor& t) {
  if (t.numel() == 0) return;
  if (t.is_floating_point()) {
    add_fill(list, t, "nan", std::numeric_limits<double>::quiet_NaN());
    add_fill(list, t, "inf", std::numeric_limits<double>::infinity());
    add_fill(list, t, "-inf", -std::numeric_limits<double>::infinity());
    add_fill(list, t, "huge", 3e38);
    add_fill(list, t, "zero", 0.0);
  } else if (t.scalar_type() == at::kBool) {
    add_fill(list, t, "false", false);
  } else if (t.scalar_type() != at::kChar) {
    const bool wide = t.scalar_type() == at::kLong;
    const std::int64_t least =
        wide ? std::numeric_limits<std::int64_t>::min() : std::numeric_limits<std::int32_t>::min();
    for (const std::int64_t value :
         {least, std::int64_t{-1}, std::int64_t{0}, std::int64_t{1000}}) {
      add_fill(list, t, value == least ? "least" : std::to_string(value).c_str(), value);
    }
    add_fill(list, t, "most", -(least + 1));
    if (t.dim() == 1 && t.size(0) > 1) list.add("reversed", Change::kValue, t.flip(0));
  }
}

std::vector<Variation> tensor_variations(const Tensor& t) {
  Variations list;
  add_sizes(list, t);
  add_kinds(list, t);
  add_layouts(list, t);
  add_values(list, t);
  return list.take();
}

std::vector<Variation> list_variations(const c10::List<Tensor>& good) {
  Variations list;
  std::vector<Variation> all;
  for (std::size_t i = 0; i < good.size(); ++i) {
    for (Variation v : tensor_variations(good.get(i))) {
      const auto with = [&](const IValue& element) {
        auto changed = good.copy();
        changed.set(i, element.toTensor());
        return IValue(changed);
      };
      v.name = c10::str("[", i, "]", v.name);
      v.value = with(v.value);
      if (!v.dense.isNone()) v.dense = with(v.dense);
      all.push_back(std::move(v));
    }
  }
  auto longer = good.copy(), shorter = good.copy();
  longer.push_back(good.get(0));
  shorter.pop_back();
  all.push_back({"longer", Change::kShape, longer, {}});
  all.push_back({"shorter", Change::kShape, shorter, {}});
  all.push_back({"empty", Change::kShape, c10::List<Tensor>(), {}});
  return all;
}

std::vector<Variation> integer_variations(std::int64_t good) {
  Variations list;
  for (const std::int64_t value :
       {good - 1, good + 1, std::int64_t{0}, std::int64_t{-1}, std::int64_t{1} << 40,
        std::numeric_limits<std::int64_t>::max(), std::numeric_limits<std::int64_t>::min()}) {
    if (value != good) list.add(std::to_string(value), Change::kValue, value);
  }
  return list.take();
}

std::vector<Variation> real_variations(double good) {
  Variations list;
  for (const double value : {0.0, -1.0, 1e300, 1e-300, std::numeric_limits<double>::quiet_NaN(),
                             std::numeric_limits<double>::infinity()}) {
    if (value != good) list.add(c10::str(value), Change::kValue, value);
  }
  return list.take();
}

std::vector<Variation> flag_variations(const c10::List<bool>& good) {
  Variations list;
  for (std::size_t i = 0; i < good.size(); ++i) {
    auto flipped = good.copy();
    flipped.set(i, !good.get(i));
    list.add("flag" + std::to_string(i), Change::kShape, flipped);
  }
  return list.take();
}

}  // namespace

std::vector<Variation> variations(const c10::TypePtr& type, const IValue& good) {
  if (const auto optional = type->cast<c10::OptionalType>()) {
    const c10::TypePtr inner = optional->getElementType();
    std::vector<Variation> list;
    if (!good.isNone()) {
      list = variations(inner, good);
      list.push_back({"none", Change::kShape, IValue(), {}});
    } else if (inner->kind() == c10::TypeKind::TensorType) {
      for (const auto dtype : {at::kFloat, at::kBool, at::kInt, at::kLong}) {
        list.push_back({std::string("given ") + c10::toString(dtype),
                        Change::kShape,
                        at::ones({2, 3}, dtype),
                        {}});
      }
    } else if (inner->kind() == c10::TypeKind::FloatType) {
      list = real_variations(0.5);
    } else {
      list = integer_variations(2);
    }
    return list;
  }
  if (good.isTensor()) return tensor_variations(good.toTensor());
  if (good.isTensorList()) return list_variations(good.toTensorList());
  if (good.isBoolList()) return flag_variations(good.toBoolList());
  if (good.isInt()) return integer_variations(good.toInt());
  if (good.isDouble()) return real_variations(good.toDouble());
  if (good.isBool()) return {{"flipped", Change::kValue, !good.toBool(), {}}};
  return {{"empty", Change::kValue, "", {}},
          {"unknown", Change::kValue, "no such name", {}},
          {"null byte", Change::kValue, std::string("a\0b", 3), {}}};
}

}  // namespace performer::testing
