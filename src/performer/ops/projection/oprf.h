#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <utility>

#include "performer/ops/feature_map.h"

namespace performer {

/// Optimal positive random features (FAVOR++): the "positive" map with
///   W2 = sqrt(1 - 4a) W  and, for queries and keys alike, the bias b_r = a |w_r|^2,
/// whose log features a |w|^2 + sqrt(1 - 4a) w.x - |x|^2/2 are bounded above in w for a < 0.
/// W: [M, D] or [heads, M, D];  a < 1/8, a constant for gradients: one number, or [heads] (a shared
/// W then becomes one per head).  Returns W2 in W's dtype and b [M] or [heads, M]. Unbiased for
/// Gaussian w up to the constant (1 - 4a)^(-D/2), which renormalised attention cancels.
std::pair<Tensor, Tensor> oprf(const Tensor& W, const Tensor& a);
std::pair<Tensor, Tensor> oprf(const Tensor& W, double a);

/// The a that minimises the mean log second moment of the estimate over all pairs of a query and a
/// real key: with phi = mean |x + y|^2 / D,
///   a = (1 - 2 phi - sqrt((1 - 2 phi)^2 + 16 phi)) / 16,
/// the negative root of 16 a^2 - (2 - 4 phi) a - phi = 0. q: [B, H, Lq, D];  k: [B, Hkv, Lk, D];
/// scale: default 1/sqrt(D);  key_mask: bool [B, Lk].  Returns [H] float64 in (-inf, 0]. O(L D).
Tensor fit_oprf(const Tensor& q, const Tensor& k, std::optional<double> scale = {},
                const Tensor& key_mask = {});

}  // namespace performer
