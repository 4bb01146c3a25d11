#include "performer/ops/favor/state.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include <string>
#include <tuple>

#include "performer/ops/backends/composed/scaled_sum.h"
#include "performer/ops/checks.h"
#include "performer/ops/favor/arguments.h"

namespace performer {
namespace {

constexpr const char* kMerge = "merge_states";

struct StateTensors {
  const Tensor &kv, &normalizer, &log2_scale;
};

// The rules that make three tensors a state; `which` opens each name in messages.
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

}  // namespace

std::int64_t FavorState::nbytes() const {
  std::int64_t total = 0;
  for (const auto* t : {&kv, &normalizer, &log2_scale, &fingerprint}) {
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
  return {kv.index_select(0, index), normalizer.index_select(0, index),
          log2_scale.index_select(0, index), fingerprint};
}

FavorState FavorState::to(at::Device device) const {
  check_state_tensors("FavorState.to", "", {kv, normalizer, log2_scale});
  return {kv.to(device), normalizer.to(device), log2_scale.to(device),
          fingerprint.defined() ? fingerprint.to(device) : fingerprint};
}

FavorState merge_states(const FavorState& earlier, const FavorState& later) {
  if (earlier.fingerprint.defined() && later.fingerprint.defined()) {
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
