#include "performer/ops/favor/state_tensors.h"

#include <ATen/ATen.h>

#include <string>

#include "performer/ops/checks.h"
#include "performer/ops/favor/arguments.h"

namespace performer {

void check_state_tensors(const char* op, const char* which, const StateTensors& state) {
  const Tensor &kv = state.kv, &normalizer = state.normalizer, &log2_scale = state.log2_scale;
  const auto check_given = [&](const Tensor& t, const std::string& name) {
    check_defined(op, {name.c_str(), t});
    check_dense(op, name.c_str(), t);
  };
  check_given(kv, std::string(which) + "kv");
  check_given(normalizer, std::string(which) + "normalizer");
  check_given(log2_scale, std::string(which) + "log2_scale");
  TORCH_CHECK(kv.dim() == 4 && (kv.scalar_type() == at::kFloat || kv.scalar_type() == at::kDouble),
              op, ": ", which,
              "kv must be float32 or float64 [N, heads, features, value dim], got ",
              kv.scalar_type(), " ", kv.sym_sizes());
  const auto sums = kv.sym_sizes().slice(0, 3);
  const auto check = [&](const Tensor& t, const char* name, at::ScalarType dtype) {
    TORCH_CHECK(t.sym_sizes() == sums && t.scalar_type() == dtype, op, ": ", which, name,
                " must be ", dtype, " ", sums, " as kv is ", kv.sym_sizes(), ", got ",
                t.scalar_type(), " ", t.sym_sizes());
    check_device(op, {(std::string(which) + name).c_str(), t}, {"kv", kv});
  };
  check(normalizer, "normalizer", kv.scalar_type());
  check(log2_scale, "log2_scale", at::kInt);
  if (has_values(log2_scale)) {
    check_range(op, (std::string(which) + "log2_scale").c_str(), log2_scale, kEmptyLog2Scale,
                kLargestLog2Scale);
  }
}

std::int64_t FavorState::nbytes() const {
  std::int64_t total = 0;
  for (const auto* t : {&kv, &normalizer, &log2_scale, &fingerprint, &near_keys, &near_values,
                        &near_bias, &near_position}) {
    if (t->defined()) total += static_cast<std::int64_t>(t->nbytes());
  }
  return total;
}

FavorState FavorState::reorder(const Tensor& index) const {
  constexpr const char* kOp = "FavorState.reorder";
  check_state_tensors(kOp, "", {kv, normalizer, log2_scale});
  TORCH_CHECK(index.defined() && index.dim() == 1 &&
                  (index.scalar_type() == at::kLong || index.scalar_type() == at::kInt),
              kOp, ": index must be int64 or int32 [sequences]");
  return each([&](const Tensor& t) { return t.index_select(0, index); });
}

FavorState FavorState::to(at::Device device) const {
  check_state_tensors("FavorState.to", "", {kv, normalizer, log2_scale});
  FavorState moved = each([&](const Tensor& t) { return t.to(device); });
  if (fingerprint.defined()) moved.fingerprint = fingerprint.to(device);
  return moved;
}

}  // namespace performer
