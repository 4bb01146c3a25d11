#include "performer/ops/favor/results.h"

#include <ATen/ATen.h>

#include <vector>

namespace performer {

namespace {

std::vector<c10::SymInt> near_sizes(const FavorArgs& a, std::vector<c10::SymInt> sizes) {
  return a.near > 0 ? sizes : std::vector<c10::SymInt>{0};
}

}  // namespace

FavorResult allocate_result(const FavorArgs& a) {
  const auto sums = a.q.options().dtype(a.accumulate());
  const auto integers = a.q.options().dtype(at::kInt);
  const std::vector<c10::SymInt> rows = {a.q.sym_size(0), a.q.sym_size(1), a.q.sym_size(2)};
  const std::vector<c10::SymInt> state = {a.num_states(), a.state_heads(), a.num_features()};
  const std::vector<c10::SymInt> kept = a.for_backward ? rows : std::vector<c10::SymInt>{0};
  const c10::SymInt places = 2 * a.near;
  auto out = rows, kv = state;
  out.push_back(a.v.sym_size(3));
  kv.push_back(a.v.sym_size(3));
  return {empty_in_stride_order(a.q, out),
          at::empty_symint(kept, sums),
          at::empty_symint(kept, integers),
          at::empty_symint(kv, sums),
          at::empty_symint(state, sums),
          at::empty_symint(state, integers),
          at::empty_symint(
              near_sizes(a, {a.num_states(), a.k.sym_size(1), places, a.k.sym_size(3)}), sums),
          at::empty_symint(
              near_sizes(a, {a.num_states(), a.k.sym_size(1), places, a.v.sym_size(3)}), sums),
          at::empty_symint(near_sizes(a, {a.num_states(), a.state_heads(), places}), sums),
          at::empty_symint(near_sizes(a, {a.num_states()}), a.q.options().dtype(at::kLong)),
          at::empty({1}, a.q.options().dtype(at::kLong))};
}

FavorState result_state(const FavorResult& r, std::int64_t near) {
  if (near == 0) return {r.kv, r.normalizer, r.log2_scale, r.fingerprint};
  return {r.kv,        r.normalizer,  r.log2_scale, r.fingerprint,
          r.near_keys, r.near_values, r.near_bias,  r.near_position};
}

Tensor allocate_step(const FavorArgs& a) {
  return empty_in_stride_order(a.q, {a.q.sym_size(0), a.q.sym_size(1), 1, a.v.sym_size(3)});
}

FavorResult with_rows(const FavorArgs& a, const FavorResult& result) {
  if (a.for_backward) return result;
  FavorResult full = result;
  const auto rows = a.q.sizes().slice(0, 3);
  full.row_sum = at::empty(rows, result.row_sum.options());
  full.row_log2_scale = at::empty(rows, result.row_log2_scale.options());
  return full;
}

FavorGradients allocate_gradients(const FavorArgs& a, const FavorNeeds& needs) {
  FavorGradients grads;
  for_each_field(kGradientFields, [&](const auto& field) {
    const Tensor& t = a.*field.member;
    if ((field.roles & kRequired) != 0) {
      grads.push_back(empty_in_stride_order(t, t.sym_sizes()));
    } else {
      const bool needed = needs[grads.size()];
      grads.push_back(needed ? at::empty_like(t, t.options(), at::MemoryFormat::Contiguous)
                             : at::empty({0}, a.q.options()));
    }
  });
  return grads;
}

}  // namespace performer
