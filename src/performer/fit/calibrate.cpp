#include "performer/fit/calibrate.h"

#include <ATen/ATen.h>

#include <cmath>

namespace performer::fit {
namespace {

constexpr double kLeastShare = 1e-4;  // of the mean variance: directions that hardly occur

// [Hkv, G D...]: all tokens of the query heads of a key head, [Hkv, N, D] float64.
Tensor tokens_of(const Tensor& heads, const Tensor& real, std::int64_t key_heads, double scale) {
  const auto width = heads.size(-1);
  const Tensor x = heads.to(at::kDouble) * std::sqrt(scale);    // [B, H, L, D]
  const Tensor chosen = x.permute({0, 2, 1, 3}).index({real});  // [N, H, D]
  return chosen.view({-1, key_heads, heads.size(1) / key_heads, width})
      .permute({1, 0, 2, 3})
      .reshape({key_heads, -1, width});
}

// M^power of symmetric matrices [Hkv, D, D], with eigenvalues bounded from below.
Tensor power(const Tensor& m, double exponent) {
  const auto [values, vectors] = at::linalg_eigh(m);
  const Tensor least = values.mean(-1, /*keepdim=*/true) * kLeastShare + 1e-12;
  const Tensor raised = at::maximum(values, least).pow(exponent);
  return at::matmul(vectors * raised.unsqueeze(-2), vectors.transpose(-2, -1));
}

// The a of fit_oprf for moments about 0: mean |x' + y'|^2 = tr Mx' + tr My'.
Tensor oprf_of(const Tensor& squared_sum, double width) {
  const Tensor phi = squared_sum / width;
  const Tensor rest = 1 - 2 * phi;
  return (rest - (rest.square() + 16 * phi).sqrt()) / 16;
}

Tensor trace_of(const Tensor& m) { return m.diagonal(0, -2, -1).sum(-1); }

}  // namespace

void Moments::add(const models::Heads& heads, const Tensor& real, double scale) {
  const auto key_heads = heads.k.size(1);
  const Tensor x = tokens_of(heads.q, real, key_heads, scale);
  const Tensor y = tokens_of(heads.k, real, key_heads, scale);
  const auto add = [](Tensor& sum, const Tensor& more) { sum = sum.defined() ? sum + more : more; };
  add(query_sum_, x.sum(1)), add(key_sum_, y.sum(1));
  add(query_square_, at::matmul(x.transpose(1, 2), x));
  add(key_square_, at::matmul(y.transpose(1, 2), y));
  queries_ += static_cast<double>(x.size(1)), keys_ += static_cast<double>(y.size(1));
}

Tensor Moments::query_second() const {
  const Tensor mean = query_mean();
  return query_square_ / queries_ - at::einsum("hi,hj->hij", {mean, mean});
}

Tensor Moments::key_second() const {
  const Tensor mean = key_mean();
  return key_square_ / keys_ - at::einsum("hi,hj->hij", {mean, mean});
}

Balance balance_of(const Moments& moments) {
  const Tensor mx = moments.query_second(), my = moments.key_second();
  const Tensor root = power(mx, 0.5), inverse_root = power(mx, -0.5);
  const Tensor middle = power(at::matmul(at::matmul(root, my), root), 0.5);
  const Tensor p = at::matmul(at::matmul(inverse_root, middle), inverse_root);
  return {power(p, 0.5), power(p, -0.5)};
}

void calibrate(models::FittedFeaturesImpl& features, const Moments& moments) {
  const at::NoGradGuard no_grad;
  const Tensor a = moments.query_mean(), b = moments.key_mean();  // [Hkv, D]
  const Tensor mx = moments.query_second(), my = moments.key_second();
  const auto [balance, back] = balance_of(moments);
  const auto width = static_cast<double>(a.size(-1));
  const Tensor squared = trace_of(at::matmul(at::matmul(balance, mx), balance)) +
                         trace_of(at::matmul(at::matmul(back, my), back));
  const Tensor rho = oprf_of(squared, width);            // [Hkv]
  const Tensor w = features.key_weight.to(at::kDouble);  // [Hkv, M, D]
  const Tensor stretched = w * (1 - 4 * rho).sqrt().view({-1, 1, 1});
  const Tensor bias = w.square().sum(-1) * rho.unsqueeze(-1) +
                      ((1 - 4 * rho).log() * (width / 4)).unsqueeze(-1);  // [Hkv, M]

  // log phi(y) = w2.A^-1 (y - b) - |A^-1 (y - b)|^2 / 2 + a.y - a.b + bias, and the like for x.
  const auto side = [&](const Tensor& form, const Tensor& mean, const Tensor& other) {
    const Tensor rows = at::matmul(stretched, form);                          // [Hkv, M, D]
    const Tensor metric = at::matmul(form.transpose(-2, -1), form);           // [Hkv, D, D]
    const Tensor moved = at::matmul(metric, mean.unsqueeze(-1)).squeeze(-1);  // [Hkv, D]
    const Tensor linear = rows + (other + moved).unsqueeze(-2);
    const Tensor constant = bias - at::matmul(rows, mean.unsqueeze(-1)).squeeze(-1) -
                            0.5 * (mean * moved).sum(-1, /*keepdim=*/true);
    return std::make_pair(linear, constant);
  };
  const auto [key_rows, key_constant] = side(back, b, a);
  const auto [query_rows, query_constant] = side(balance, a, b);
  const Tensor shared = (a * b).sum(-1, /*keepdim=*/true);
  const auto group = features.query_weight.size(0) / features.key_weight.size(0);
  const auto to_queries = [&](const Tensor& t) { return t.repeat_interleave(group, 0); };
  features.key_weight.copy_(key_rows), features.key_bias.copy_(key_constant - shared);
  features.key_form.copy_(back);
  features.query_weight.copy_(to_queries(query_rows));
  features.query_bias.copy_(to_queries(query_constant));
  if (features.query_form.defined()) features.query_form.copy_(to_queries(balance));
}

}  // namespace performer::fit
