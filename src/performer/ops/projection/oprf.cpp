#include "performer/ops/projection/oprf.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include <cmath>
#include <tuple>

#include "performer/ops/checks.h"
#include "performer/ops/exact/softmax_rows.h"
#include "performer/ops/projection/grid.h"

namespace performer {
namespace {

void check_oprf(const Tensor& W, const Tensor& a) {
  TORCH_CHECK(W.defined() && a.defined(), "oprf: projection and a must be defined tensors");
  check_dense("oprf", "projection", W);
  check_dense("oprf", "a", a);
  TORCH_CHECK(W.dim() == 2 || W.dim() == 3,
              "oprf: projection must be [features, dim] or [heads, features, dim], got ",
              W.sizes());
  TORCH_CHECK(W.sym_numel() > 0, "oprf: projection must not be empty, got ", W.sizes());
  TORCH_CHECK(at::isFloatingType(W.scalar_type()), "oprf: projection must be floating, got ",
              W.scalar_type());
  TORCH_CHECK(a.dim() <= 1 && at::isFloatingType(a.scalar_type()),
              "oprf: a must be a number or floating [heads], got ", a.scalar_type(), " ",
              a.sizes());
  TORCH_CHECK(a.dim() == 0 || a.size(0) > 0, "oprf: a must hold one value for each head, got ",
              a.sizes());
  TORCH_CHECK(a.is_cpu() || a.device() == W.device(),
              "oprf: a must be on the CPU or the device of projection, ", W.device(), ", got ",
              a.device());
  if (!has_values(a)) return;
  const Tensor bad = a.lt(0.125).logical_and(a.gt(-INFINITY)).logical_not();
  TORCH_CHECK(!bad.any().item<bool>(),
              "oprf: a must be finite and below 1/8, where the variance is finite, got ",
              a.masked_select(bad).select(0, 0).item<double>());
}

// W with a head axis that matches `heads` values of a.
Tensor expand_projection(const Tensor& W, std::int64_t heads) {
  const Tensor w = W.dim() == 2 ? W.unsqueeze(0) : W;
  TORCH_CHECK(heads == 1 || (w.size(0) > 0 && heads % w.size(0) == 0),
              "oprf: a must have as many heads as the ", "projection ", W.sizes(),
              " or a multiple, got ", heads);
  return heads <= w.size(0) ? w : w.repeat_interleave(heads / w.size(0), 0);
}

// Sum over pairs of |x + y|^2 = |x|^2 + |y|^2 + 2 x.y in O(L D): each part is a sum or a product of
// sums. Returns the mean per head, [H].
Tensor mean_squared_sum(const Tensor& x, const Tensor& y, const Tensor& real) {
  const Tensor keys = real.sum(2);                                         // [B, 1]
  const Tensor sum_x = x.sum(2), sum_y = (y * real.unsqueeze(-1)).sum(2);  // [B, H, D]
  const Tensor norm_x = x.square().sum({2, 3});                            // [B, H]
  const Tensor norm_y = (y.square().sum(3) * real).sum(2);                 // [B, H]
  const Tensor total = norm_x * keys + norm_y * x.size(2) + 2 * (sum_x * sum_y).sum(2);
  return total.sum(0) / (keys.sum() * x.size(2));
}

}  // namespace

std::pair<Tensor, Tensor> oprf(const Tensor& W, const Tensor& a, ProjectionRounding rounding) {
  check_oprf(W, a);
  Tensor w = W, value = a.detach().to(W.device(), at::kDouble);
  if (a.dim() == 1) {
    w = expand_projection(W, a.size(0));
    value = value.view({-1, 1, 1});
  }
  const Tensor factor = 1 - 4 * value;
  Tensor scaled = w.to(at::kDouble) * factor.sqrt();
  if (rounding == ProjectionRounding::kBf16) scaled = round_to_grid(scaled);
  scaled = scaled.to(W.scalar_type());
  const Tensor terms = value / factor * scaled.to(at::kDouble).square() + factor.log() / 4;
  return {scaled, terms.sum(-1).to(W.scalar_type())};
}

std::pair<Tensor, Tensor> oprf(const Tensor& W, double a, ProjectionRounding rounding) {
  return oprf(W, at::scalar_tensor(a, at::kDouble), rounding);
}

Tensor fit_oprf(const Tensor& q, const Tensor& k, std::optional<double> scale,
                const Tensor& key_mask) {
  constexpr const char* kOp = "fit_oprf";
  const at::NoGradGuard no_grad;
  check_heads(kOp, q, k);
  const double factor = scale.value_or(1.0 / std::sqrt(static_cast<double>(q.size(3))));
  TORCH_CHECK(std::isfinite(factor) && factor > 0, kOp, ": scale must be positive, got ", factor);
  TORCH_CHECK(q.size(2) > 0 && k.size(2) > 0, kOp, ": q and k must not be empty, got ", q.sizes(),
              " and ", k.sizes());
  Tensor y = expand_heads(k, q.size(1)).to(at::kDouble);
  Tensor real = at::ones({k.size(0), 1, k.size(2)}, y.options());  // [B, 1, Lk]
  if (key_mask.defined()) {
    check_key_mask(kOp, key_mask, k);
    real = key_mask.unsqueeze(1).to(at::kDouble);
    y = y.masked_fill(key_mask.logical_not().view({k.size(0), 1, k.size(2), 1}), 0);
  }
  const Tensor phi = mean_squared_sum(q.to(at::kDouble), y, real) * (factor / q.size(3));  // [H]
  const Tensor half = 1 - 2 * phi;
  return (half - (half.square() + 16 * phi).sqrt()) / 16;
}

TORCH_LIBRARY_FRAGMENT(performer, m) {
  m.def(
      "oprf(Tensor projection, Tensor a, str rounding='bf16') -> (Tensor projection, Tensor bias)",
      [](const Tensor& W, const Tensor& a, std::string_view rounding) {
        auto [scaled, bias] = oprf(W, a, parse_projection_rounding(rounding, "oprf"));
        return std::make_tuple(scaled, bias);
      });
  m.def("fit_oprf(Tensor q, Tensor k, float? scale, Tensor? key_mask) -> Tensor",
        [](const Tensor& q, const Tensor& k, std::optional<double> scale,
           const std::optional<Tensor>& key_mask) {
          return fit_oprf(q, k, scale, key_mask.value_or(Tensor()));
        });
}

}  // namespace performer
