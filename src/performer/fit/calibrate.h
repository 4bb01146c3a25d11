#pragma once

#include <vector>

#include "performer/fit/attention_divergence.h"

namespace performer::fit {

/// Moments of a layer's queries and keys, as x = sqrt(scale) q and y = sqrt(scale) k, of all real
/// tokens that were shown.
class Moments {
 public:
  /// q [B, H, L, D] and k [B, Hkv, L, D] of one batch; real: bool [B, L].
  void add(const models::Heads& heads, const Tensor& real, double scale);

  /// float64 [Hkv, D] and [Hkv, D, D] about the means: queries count with the key head they meet.
  Tensor query_mean() const { return query_sum_ / queries_; }
  Tensor key_mean() const { return key_sum_ / keys_; }
  Tensor query_second() const;
  Tensor key_second() const;
  bool empty() const { return !query_sum_.defined(); }

 private:
  Tensor query_sum_, key_sum_, query_square_, key_square_;
  double queries_ = 0, keys_ = 0;
};

/// A = P^1/2 and A^-1 of the moments, symmetric: float64 [Hkv, D, D].
struct Balance {
  Tensor there, back;
};
Balance balance_of(const Moments& moments);

/// Sets the features to what random positive ones become by exact identities, without training:
///   exp(x.y) = exp(x'.y') exp(x.b + a.y - a.b),  x' = A (x - a),  y' = A^-T (y - b)
/// with the means a and b, and A = P^1/2 balancing the second moments of both sides,
/// P = Mx^-1/2 (Mx^1/2 My Mx^1/2)^1/2 Mx^-1/2; and optimal positive features (OPRF) of x' and y'.
/// The random rows are those that the features have now.
void calibrate(models::FittedFeaturesImpl& features, const Moments& moments);

}  // namespace performer::fit
