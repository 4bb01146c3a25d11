#include <ATen/ATen.h>

#include <string>
#include <vector>

#include "performer/ops/checks.h"
#include "performer/ops/favor/arguments.h"
#include "performer/ops/favor/attention.h"

namespace performer {
namespace {

using Sizes = std::vector<c10::SymInt>;

void check_query_bias(const FavorArgs& a) {
  const Tensor& b = a.query_bias;
  if (!b.defined()) return;
  TORCH_CHECK(a.map() == FeatureMap::kLoglinear && a.near > 0, a.op,
              ": query_bias is for loglinear with a near field (elsewhere it cancels), got "
              "feature_map '",
              a.feature_map, "' and near=", a.near);
  TORCH_CHECK(b.is_floating_point(), a.op, ": query_bias must be floating point, got ",
              b.scalar_type());
  check_device(a.op, {"query_bias", b}, {"q", a.q});
  TORCH_CHECK((b.dim() == 2 || b.dim() == 3) && b.sym_size(0) == a.q.sym_size(0) &&
                  b.sym_size(-1) == a.q.sym_size(2),
              a.op,
              ": query_bias must be [batch, heads, length of q] or [batch, length of q] with q ",
              a.q.sym_sizes(), ", got ", b.sym_sizes());
  const c10::SymInt heads = b.dim() == 3 ? b.sym_size(1) : c10::SymInt(1);
  TORCH_CHECK(heads == 1 || heads == a.k.sym_size(1) || heads == a.q.sym_size(1), a.op,
              ": query_bias must be shared or have 1, ", a.k.sym_size(1), " (k's) or ",
              a.q.sym_size(1), " (q's) heads, got ", b.sym_sizes());
}

void check_near_state(const FavorArgs& a) {
  const bool given = a.near > 0 && a.state_kv.defined();
  const auto check = [&](const char* name, const Tensor& t, const Sizes& sizes,
                         at::ScalarType dtype) {
    TORCH_CHECK(given || !t.defined(), a.op, ": initial_state.", name,
                " belongs to a state with a near field, got near=", a.near,
                a.state_kv.defined() ? "" : " and no state");
    if (!given) return;
    TORCH_CHECK(t.defined(), a.op, ": initial_state was made without a near field: it has no ",
                name, ", which near=", a.near, " needs");
    TORCH_CHECK(t.sym_sizes() == c10::SymIntArrayRef(sizes) && t.scalar_type() == dtype, a.op,
                ": initial_state.", name, " must be ", dtype, " ", c10::SymIntArrayRef(sizes),
                " for near=", a.near, ", got ", t.scalar_type(), " ", t.sym_sizes());
    check_device(a.op, {(std::string("initial_state.") + name).c_str(), t}, {"q", a.q});
  };
  const c10::SymInt n = a.num_states(), heads = a.k.sym_size(1), places = 2 * a.near;
  check("near_keys", a.state_near_keys, {n, heads, places, a.k.sym_size(3)}, a.accumulate());
  check("near_values", a.state_near_values, {n, heads, places, a.v.sym_size(3)}, a.accumulate());
  check("near_bias", a.state_near_bias, {n, a.state_heads(), places}, a.accumulate());
  check("near_position", a.state_near_position, {n}, at::kLong);
}

}  // namespace

void check_near_field(const FavorArgs& a) {
  TORCH_CHECK(a.near >= 0 && a.near <= kMaxNear, a.op, ": near must be in 0 ... ", kMaxNear,
              " tokens a block, got ", a.near);
  check_query_bias(a);
  check_near_state(a);
  if (a.near == 0) return;
  TORCH_CHECK(is_softmax_map(a.map()), a.op,
              ": near is for the softmax maps, which estimate the exp(q.k) that it computes "
              "(positive, loglinear, hyperbolic, trigonometric), got feature_map '",
              a.feature_map, "'");
  TORCH_CHECK(a.q.sym_size(2) == a.k.sym_size(2), a.op,
              ": near needs q and k of the same tokens, got q ", a.q.sym_sizes(), ", k ",
              a.k.sym_sizes());
}

}  // namespace performer
