#include <ATen/ATen.h>

#include <vector>

#include "performer/ops/checks.h"
#include "performer/ops/favor/results.h"
#include "performer/ops/favor/state.h"

// What the backward operator is given beside the forward arguments. Autograd hands back what the
// forward pass made; a direct caller may hand in anything, and kernels index by these shapes.
namespace performer {
namespace {

using Sizes = std::vector<c10::SymInt>;

struct Expected {
  const char* name;
  const char* axes;
  Sizes sizes;
};

void check_tensor(const FavorArgs& a, const Tensor& t, const Expected& expected) {
  check_defined(a.op, {expected.name, t});
  TORCH_CHECK(t.sym_sizes() == c10::SymIntArrayRef(expected.sizes), a.op, ": ", expected.name,
              " must be ", c10::SymIntArrayRef(expected.sizes), " (", expected.axes, "), got ",
              t.sym_sizes());
  check_device(a.op, {expected.name, t}, {"q", a.q});
}

void check_tensor(const FavorArgs& a, const Tensor& t, const Expected& expected,
                  at::ScalarType dtype) {
  check_tensor(a, t, expected);
  TORCH_CHECK(t.scalar_type() == dtype, a.op, ": ", expected.name, " must be ", dtype, ", got ",
              t.scalar_type());
}

void check_gradient(const FavorArgs& a, const Tensor& t, const Expected& expected) {
  check_tensor(a, t, expected);
  TORCH_CHECK(t.is_floating_point(), a.op, ": ", expected.name, " must be floating point, got ",
              t.scalar_type());
}

// Without a near field its results are [0], and so are gradients of theirs.
void check_near_gradient(const FavorArgs& a, const Tensor& t, Expected expected) {
  if (a.near == 0) expected.sizes = {0};
  if (t.defined()) check_tensor(a, t, expected, a.accumulate());
}

void check_needs(const FavorArgs& a, const FavorSaved& saved) {
  std::size_t i = 0;
  for_each_field(kGradientFields, [&](const auto& field) {
    TORCH_CHECK(!saved.needs[i] || (a.*field.member).defined(), a.op, ": needs[", i,
                "] asks for the gradient of ", field.name, ", which is not given");
    ++i;
  });
  const bool kv = saved.needs_gradient(&FavorArgs::state_kv);
  const bool normalizer = saved.needs_gradient(&FavorArgs::state_normalizer);
  TORCH_CHECK(kv == normalizer, a.op,
              ": needs must ask for the gradients of state_kv and state_normalizer together, got ",
              kv, " and ", normalizer);
}

}  // namespace

void check_favor_saved(const FavorSaved& saved, const FavorArgs& a) {
  const FavorResult& r = saved.result;
  const Sizes rows = {a.q.sym_size(0), a.q.sym_size(1), a.q.sym_size(2)};
  const Sizes sums = {a.num_states(), a.state_heads(), a.num_features()};
  Sizes out = rows, kv = sums;
  out.push_back(a.v.sym_size(3));
  kv.push_back(a.v.sym_size(3));
  constexpr const char* kRows = "batch, heads, length; favor_attention with for_backward=True";
  constexpr const char* kOut = "batch, heads, length, value dim";
  constexpr const char* kSums = "sequences, heads, features";
  constexpr const char* kNear = "sequences, key heads, 2 near, dim";
  constexpr const char* kKv = "sequences, heads, features, value dim";
  check_gradient(a, saved.grad_out, {"grad_out", kOut, out});
  check_tensor(a, r.row_sum, {"row_sum", kRows, rows}, a.accumulate());
  check_tensor(a, r.row_log2_scale, {"row_log2_scale", kRows, rows}, at::kInt);
  check_tensor(a, r.kv, {"kv", kKv, kv}, a.accumulate());
  check_tensor(a, r.normalizer, {"normalizer", kSums, sums}, a.accumulate());
  check_tensor(a, r.log2_scale, {"log2_scale", kSums, sums}, at::kInt);
  if (r.out.defined()) check_tensor(a, r.out, {"out", kOut, out}, a.q.scalar_type());
  const auto check_state_gradient = [&](const Tensor& t, const Expected& expected) {
    if (t.defined()) check_tensor(a, t, expected, a.accumulate());
  };
  check_state_gradient(saved.grad_kv, {"grad_kv", kKv, kv});
  check_state_gradient(saved.grad_normalizer, {"grad_normalizer", kSums, sums});
  const c10::SymInt n = a.num_states(), heads = a.k.sym_size(1), places = 2 * a.near;
  check_near_gradient(a, saved.grad_near_keys,
                      {"grad_near_keys", kNear, {n, heads, places, a.k.sym_size(3)}});
  check_near_gradient(a, saved.grad_near_values,
                      {"grad_near_values", kNear, {n, heads, places, a.v.sym_size(3)}});
  check_near_gradient(a, saved.grad_near_bias,
                      {"grad_near_bias", "sequences, heads, 2 near", {n, a.state_heads(), places}});
  check_needs(a, saved);
}

void check_saved_values(const FavorSaved& saved, const FavorArgs& a) {
  // The sum of two scales and, in a chunk without keys, of the empty one.
  constexpr std::int64_t kRowLimit = std::int64_t{3} << 29;
  check_range(a.op, "row_log2_scale", saved.result.row_log2_scale, -kRowLimit, kRowLimit);
  check_range(a.op, "log2_scale", saved.result.log2_scale, kEmptyLog2Scale, kLargestLog2Scale);
}

}  // namespace performer
