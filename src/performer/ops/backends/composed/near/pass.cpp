#include "performer/ops/backends/composed/near/pass.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "performer/ops/backends/composed/pow2.h"
#include "performer/ops/favor/state.h"

namespace performer::composed {
namespace {

RowSums rows_of(const RowSums& all, Block block) {
  const auto part = [&](const Tensor& t) { return t.narrow(3, block.start, block.length); };
  return {part(all.sums), part(all.log2), part(all.reached)};
}

// Adds `more` to the rows of `into`, on their larger scale.
void add_rows(const RowSums& into, const RowSums& more) {
  const Tensor log2 = at::maximum(into.log2, more.log2);
  const auto lowered = [&](const RowSums& r) {
    return r.sums * exact_exp2(r.log2 - log2).unsqueeze(-1);
  };
  into.sums.copy_(lowered(into) + lowered(more));
  into.log2.copy_(log2);
  into.reached.logical_or_(more.reached);
}

void set_rows(const RowSums& to, const RowSums& from) {
  to.sums.copy_(from.sums), to.log2.copy_(from.log2), to.reached.copy_(from.reached);
}

}  // namespace

NearPass::NearPass(const FavorArgs& args)
    : slots(args), call(slots.call()), near_(args.near), far_constant_(call.map_constant) {
  if (args.map() == FeatureMap::kLoglinear) {
    far_constant_ = 1.0 / static_cast<double>(std::max<std::int64_t>(1, call.num_features));
  }
  call.map_constant = 1;  // it belongs to the far field alone
}

Tensor NearPass::raw_queries(std::int64_t index) const {
  const auto [start, length] = block(index);
  return call.heads.split_queries(call.args.q.narrow(2, start, length));
}

Block NearPass::local_slots(std::int64_t index) const {
  const std::int64_t after = call.args.causal ? 0 : 1;
  const auto last = std::min(index + after, blocks() - 1);
  return {(index - 1) * near_, (last - index + 2) * near_};
}

LocalKeys NearPass::local_keys(std::int64_t index) const {
  const auto [start, length] = local_slots(index);
  const FavorArgs& a = call.args;
  const auto slice = [&, begin = start, count = length](const Tensor& t) {
    return call.heads.expand_keys(t.narrow(2, begin, count));
  };
  LocalKeys keys;
  keys.before = a.causal ? near_ : -1;
  keys.mask = a.key_mask.narrow(1, start, length).unsqueeze(1);  // [B, 1, N]
  if (a.key_bias.defined()) {
    const Tensor bias = slice(a.key_bias);
    keys.mask = keys.mask.logical_and(bias.ne(-std::numeric_limits<double>::infinity()));
    if (a.map() != FeatureMap::kLoglinear) keys.bias = bias;
  }
  const Tensor removed = keys.mask.logical_not();
  if (keys.bias.defined()) keys.bias = keys.bias.masked_fill(removed, 0);
  keys.x = slice(a.k).masked_fill(removed.unsqueeze(-1), 0);
  const Tensor v = slice(a.v).masked_fill(removed.unsqueeze(-1), 0);
  keys.values = at::cat({v, at::ones_like(keys.x.narrow(-1, 0, 1))}, -1);  // v may have width 0
  return keys;
}

Tensor NearPass::real() const {
  const FavorArgs& a = call.args;
  if (!a.key_bias.defined()) return a.key_mask;
  return a.key_mask.logical_and(a.key_bias.ne(-std::numeric_limits<double>::infinity()).any(1));
}

double NearPass::norm_sign() const {
  if (!call.key.norm_term) return 0;
  return call.args.map() == FeatureMap::kTrigonometric ? 1 : -1;
}

Tensor NearPass::far_log2(std::int64_t index) const {
  const auto [start, length] = block(index);
  const Tensor norm = raw_queries(index).square().sum(-1);  // [B, Hs, G, C]
  Tensor log = norm * (norm_sign() * 0.5 * call.query.scale);
  if (call.args.query_bias.defined()) {
    const Tensor bias = call.args.query_bias.narrow(2, start, length);
    const Tensor spread = bias.repeat_interleave(call.heads.query / bias.size(1), 1);
    log = log + call.heads.split_queries(spread);
  }
  return log * kLog2E + std::log2(far_constant_);
}

ScaledSum NearPass::sum_block(std::int64_t index) const {
  return sum_keys(call.load_keys(block(index)));
}

ScaledSum NearPass::sum_joining_block(std::int64_t index) const {
  const ScaledSum all = sum_block(index);
  const Tensor stays = slots.joins(index).logical_not().view({-1, 1, 1});
  return {all.sum.masked_fill(stays.unsqueeze(-1), 0),
          all.log2.masked_fill(stays, static_cast<double>(kEmptyLog2Scale))};
}

ScaledSum NearPass::no_sum() const {
  return empty_sum({call.args.q.size(0), call.heads.state, call.num_features, call.value_dim + 1},
                   call.args.q.options());
}

ScaledSum NearPass::scan_up(const ScaledSum& first, const MakePart& add, const UseSum& use) const {
  ScaledSum sum = first;
  for (std::int64_t c = 0; c < blocks(); ++c) {
    if (c >= 2) sum = merge(sum, add(c - 2));
    use(c, sum);
  }
  return sum;
}

ScaledSum NearPass::scan_down(const ScaledSum& first, const MakePart& add,
                              const UseSum& use) const {
  ScaledSum sum = first;
  for (std::int64_t c = blocks() - 1; c >= 0; --c) {
    if (c + 2 < blocks()) sum = merge(sum, add(c + 2));
    use(c, sum);
  }
  return sum;
}

NearPass::Rows NearPass::rows() const {
  const auto& q = call.args.q;
  const auto T = slots.count();
  const RowSums all{
      at::zeros({q.size(0), call.heads.state, call.heads.group(), T, call.value_dim + 1},
                q.options()),
      at::full({q.size(0), call.heads.state, call.heads.group(), T},
               static_cast<double>(kEmptyLog2Scale), q.options()),
      at::zeros({q.size(0), call.heads.state, call.heads.group(), T},
                q.options().dtype(at::kBool))};
  for (std::int64_t c = 1; c < blocks(); ++c) {
    const LocalKeys keys = local_keys(c);
    set_rows(rows_of(all, block(c)), LocalScores(raw_queries(c), keys, call.query.scale).sums());
  }
  if (!has_far()) return {all, call.initial_sum()};
  const auto attend = [&](std::int64_t c, const ScaledSum& sum) {
    if (c == 0) return;
    RowSums far = attend_state(call.load_queries(block(c)), sum);
    const Tensor own = far_log2(c), whole = round_up_log2(own);
    far.sums = far.sums * at::exp2(own - whole).unsqueeze(-1);
    far.log2 = far.log2 + whole;
    add_rows(rows_of(all, block(c)), far);
  };
  ScaledSum state = scan_up(
      call.initial_sum(), [&](std::int64_t c) { return sum_joining_block(c); }, attend);
  state = merge(state, sum_joining_block(blocks() - 2));  // where the last block is full
  if (!call.args.causal) {
    scan_down(
        no_sum(), [&](std::int64_t c) { return sum_block(c); }, attend);
  }
  return {all, state};
}

}  // namespace performer::composed
