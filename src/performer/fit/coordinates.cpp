#include "performer/fit/coordinates.h"

#include <ATen/ATen.h>

namespace performer::fit {
namespace {

// W t of [H, R, D] and [H, D]: [H, R].
Tensor times(const Tensor& matrix, const Tensor& vector) {
  return at::matmul(matrix, vector.unsqueeze(-1)).squeeze(-1);
}

Tensor spread_to(const Tensor& key_heads, std::int64_t heads) {
  return key_heads.repeat_interleave(heads / key_heads.size(0), 0);
}

}  // namespace

Coordinates::Coordinates(models::FittedFeatures features, const Moments& moments)
    : features_(std::move(features)) {
  const auto heads = features_->query_weight.size(0), key_heads = features_->key_weight.size(0);
  const auto width = features_->key_weight.size(2);
  const auto like = features_->key_weight.options();
  Tensor a = at::zeros({key_heads, width}, like), b = at::zeros({key_heads, width}, like);
  Tensor there = at::eye(width, like).repeat({key_heads, 1, 1}), back = there;
  if (!moments.empty()) {
    const Balance balance = balance_of(moments);
    a = moments.query_mean().to(like), b = moments.key_mean().to(like);
    there = balance.there.to(like), back = balance.back.to(like);
  }
  const auto add = [&](const char* name, at::IntArrayRef sizes) {
    return changes_.emplace_back(name, at::zeros(sizes, like)).second;
  };
  const auto side = [&](const Tensor& weight, const Tensor& bias, const Tensor& form) {
    return Side{{}, {}, weight.clone(), bias.clone(), form.defined() ? form.clone() : form};
  };
  query_ = side(features_->query_weight, features_->query_bias, features_->query_form);
  key_ = side(features_->key_weight, features_->key_bias, features_->key_form);
  query_.mean = spread_to(a, heads), query_.balance = spread_to(there, heads);
  key_.mean = b, key_.balance = back;
  query_.rows = add("query_rows", query_.weight.sizes());
  query_.shift = add("query_shift", query_.bias.sizes());
  key_.rows = add("key_rows", key_.weight.sizes());
  key_.shift = add("key_shift", key_.bias.sizes());
  key_.spread = add("key_spread", {key_heads});
  if (!features_->query_form.defined()) return;
  query_.spread = add("query_spread", {heads});
  offset_ = features_->query_offset.clone();
  offset_change_ = add("query_offset", {heads});
}

Coordinates::Changed Coordinates::changed(const Side& side) {
  const Tensor rows = at::matmul(side.rows, side.balance);
  Changed now{side.weight + rows, side.bias + side.shift - times(rows, side.mean), side.form};
  if (!side.spread.defined()) return now;
  // exp(spread) |F (y - b)|^2 has a linear and a constant term in y beside |exp(spread / 2) F y|^2.
  const Tensor more = side.spread.expm1().unsqueeze(-1);  // [H, 1]
  const Tensor moved = times(side.form, side.mean);       // [H, D]
  const Tensor linear = times(side.form.transpose(-2, -1), moved) * more;
  now.weight = now.weight + linear.unsqueeze(-2);
  now.bias = now.bias - 0.5 * more * moved.square().sum(-1, /*keepdim=*/true);
  now.form = side.form * (0.5 * side.spread).exp().view({-1, 1, 1});
  return now;
}

void Coordinates::apply() {
  const Changed query = changed(query_), key = changed(key_);
  features_->query_weight = query.weight, features_->query_bias = query.bias;
  features_->key_weight = key.weight, features_->key_bias = key.bias;
  features_->key_form = key.form;
  if (!query.form.defined()) return;
  features_->query_form = query.form;
  features_->query_offset = offset_ + offset_change_;
}

void Coordinates::settle() {
  const at::NoGradGuard no_grad;
  apply();
  auto& f = *features_;
  const std::pair<const char*, Tensor*> members[] = {
      {"query_weight", &f.query_weight}, {"query_bias", &f.query_bias},
      {"key_weight", &f.key_weight},     {"key_bias", &f.key_bias},
      {"key_form", &f.key_form},         {"query_form", &f.query_form},
      {"query_offset", &f.query_offset}};
  auto buffers = f.named_buffers();
  for (const auto& [name, member] : members) {
    if (!member->defined()) continue;
    *member = buffers[name].copy_(*member);
  }
}

}  // namespace performer::fit
