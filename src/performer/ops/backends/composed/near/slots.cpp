#include "performer/ops/backends/composed/near/slots.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>
#include <vector>

namespace performer::composed {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// index [B, N] for the third axis of t, and where it says nothing.
Tensor take(const Tensor& t, const Tensor& index, const Tensor& valid, double fill) {
  std::vector<std::int64_t> shape = {index.size(0), 1, index.size(1)}, full = t.sizes().vec();
  shape.resize(static_cast<std::size_t>(t.dim()), 1);
  full[2] = index.size(1);
  const Tensor taken = t.gather(2, index.view(shape).expand(full));
  return taken.masked_fill(valid.logical_not().view(shape), fill);
}

Tensor with_heads(const Tensor& bias) { return bias.dim() == 2 ? bias.unsqueeze(1) : bias; }

// The first real token of each sequence, its length where there is none: [B].
Tensor first_real(const FavorArgs& a) {
  const auto B = a.q.size(0), L = a.q.size(2);
  const auto options = a.q.options().dtype(at::kLong);
  Tensor real = a.key_mask;
  if (a.key_bias.defined()) {
    const Tensor seen = with_heads(a.key_bias).ne(-kInfinity).any(1);
    real = real.defined() ? real.logical_and(seen) : seen;
  }
  if (!real.defined() || L == 0) return at::zeros({B}, options);
  return at::where(real.any(1), real.to(at::kInt).argmax(1), L);
}

}  // namespace

Slots::Slots(const FavorArgs& a) : args_(a), near_(a.near), length_(a.q.size(2)) {
  const auto B = a.q.size(0), b = near_;
  const auto options = a.q.options().dtype(at::kLong);
  const Tensor before =
      a.state_near_position.defined() ? a.state_near_position : at::zeros({B}, options);
  const Tensor fresh = before.eq(0);
  const Tensor origin = first_real(a).masked_fill(fresh.logical_not(), 0);
  const Tensor part = before.remainder(b);  // tokens in the state's last block
  const auto longest = length_ + (a.state_near_position.defined() ? b - 1 : 0);
  count_ = std::max(b + (longest + b - 1) / b * b, 2 * b);

  const Tensor first = (part + b).unsqueeze(1);  // the slot of the first token
  const Tensor slots = at::arange(count_, options).unsqueeze(0);
  const Tensor places = slots.narrow(1, 0, 2 * b);
  held_ = places.lt(first).logical_and(places.ge(b).logical_or(before.ge(b).unsqueeze(1)));
  const Tensor token = slots - first + origin.unsqueeze(1);
  const Tensor in_state = slots.lt(first);
  const Tensor from_token = in_state.logical_not().logical_and(token.lt(length_));
  source_ = at::where(in_state, slots, token + 2 * b)
                .masked_fill(in_state.logical_or(from_token).logical_not(), 0);
  filled_ = from_token;
  filled_.narrow(1, 0, 2 * b).logical_or_(held_);

  const Tensor tokens = at::arange(length_, options).unsqueeze(0);
  has_slot_ = tokens.ge(origin.unsqueeze(1));
  slot_ = (tokens - origin.unsqueeze(1) + first).masked_fill(has_slot_.logical_not(), 0);

  position_ = before + (length_ - origin);
  start_ = (position_.floor_divide(b) - before.floor_divide(b)) * b;
  stays_ = places.lt(position_.remainder(b).unsqueeze(1) + b)
               .logical_and(places.ge(b).logical_or(position_.ge(b).unsqueeze(1)));
}

Tensor Slots::joined(const Tensor& state, const Tensor& tokens, double fill) const {
  std::vector<std::int64_t> sizes = tokens.sizes().vec();
  sizes[2] = 2 * near_;
  const Tensor kept = state.defined() ? state.to(tokens.scalar_type()).expand(sizes)
                                      : at::zeros({}, tokens.options()).expand(sizes);
  return take(at::cat({kept, tokens}, 2), source_, filled_, fill);
}

FavorArgs Slots::call() const {
  FavorArgs a = args_;
  const auto dtype = args_.accumulate();
  const auto heads = args_.state_heads().expect_int();
  a.q = from_tokens(args_.q.to(dtype));
  a.k = joined(args_.state_near_keys, args_.k.to(dtype), 0);
  a.v = joined(args_.state_near_values, args_.v.to(dtype), 0);
  a.key_mask = filled_;
  if (args_.key_mask.defined()) {
    const Tensor mask = args_.key_mask.unsqueeze(1);
    a.key_mask = joined(at::ones({1}, mask.options()), mask, 0).squeeze(1).logical_and(filled_);
  }
  if (args_.key_bias.defined() || args_.state_near_bias.defined()) {
    const Tensor own = args_.key_bias.defined()
                           ? with_heads(args_.key_bias).to(dtype)
                           : at::zeros({args_.q.size(0), 1, length_}, a.q.options());
    const Tensor spread = own.size(1) == 1 ? own.expand({-1, heads, -1})
                                           : own.repeat_interleave(heads / own.size(1), 1);
    a.key_bias = joined(args_.state_near_bias, spread, 0);
  }
  if (args_.query_bias.defined())
    a.query_bias = from_tokens(with_heads(args_.query_bias).to(dtype));
  for (Tensor* t :
       {&a.state_near_keys, &a.state_near_values, &a.state_near_bias, &a.state_near_position}) {
    *t = Tensor();
  }
  return a;
}

Tensor Slots::from_tokens(const Tensor& t) const { return joined({}, t, 0); }

Tensor Slots::to_tokens(const Tensor& t) const { return take(t, slot_, has_slot_, 0); }

Tensor Slots::to_state(const Tensor& t) const {
  std::vector<std::int64_t> shape = {held_.size(0), 1, 2 * near_};
  shape.resize(static_cast<std::size_t>(t.dim()), 1);
  return t.narrow(2, 0, 2 * near_).masked_fill(held_.logical_not().view(shape), 0);
}

Tensor Slots::joins(std::int64_t block) const { return start_.gt(block * near_); }

Tensor Slots::to_final(const Tensor& t, double fill) const {
  const Tensor places = at::arange(2 * near_, start_.options()).unsqueeze(0);
  const Tensor index = (start_.unsqueeze(1) + places).clamp_max(count_ - 1);
  return take(t, index, stays_, fill);
}

Tensor Slots::from_final(const Tensor& t) const {
  const Tensor place = at::arange(count_, start_.options()).unsqueeze(0) - start_.unsqueeze(1);
  const Tensor inside = place.ge(0).logical_and(place.lt(2 * near_));
  const Tensor index = place.clamp(0, 2 * near_ - 1);
  return take(t, index, inside.logical_and(stays_.gather(1, index)), 0);
}

}  // namespace performer::composed
