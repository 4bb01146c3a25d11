#pragma once

#include <string>
#include <utility>
#include <vector>

#include "performer/fit/calibrate.h"
#include "performer/models/fitted_features.h"

namespace performer::fit {

/// What a fit changes of a layer's features, in coordinates where a step means the same in every
/// direction: queries and keys centred and balanced as calibrate() has them,
///   x' = A (x - a),  y' = A^-T (y - b).
/// Queries and keys themselves are no such coordinates: their components differ by orders of
/// magnitude, and Adam, which steps alike in all, leaves the numbers within dozens of steps.
///
///   log phi(y) = what it was + rows . y' + bias - (exp(spread) - 1) |form (y - b)|^2 / 2
/// and the like for x; spread, a number a head, only where the form is there.
class Coordinates {
 public:
  /// Moments of what the features were calibrated on; empty: x' = x, y' = y.
  Coordinates(models::FittedFeatures features, const Moments& moments);

  /// All zero at first: "query_rows" and so on, in a fixed order.
  const std::vector<std::pair<std::string, Tensor>>& changes() const { return changes_; }

  /// Lets the features be functions of the changes, for gradients.
  void apply();
  /// Writes the features' numbers, which are no functions then.
  void settle();

 private:
  struct Side {
    Tensor mean, balance;       // [H, D], [H, D, D]
    Tensor weight, bias, form;  // as they were; no form: undefined
    Tensor rows, shift, spread;
  };
  struct Changed {
    Tensor weight, bias, form;
  };
  static Changed changed(const Side& side);

  models::FittedFeatures features_;
  Side query_, key_;
  Tensor offset_, offset_change_;  // of queries, with a near field
  std::vector<std::pair<std::string, Tensor>> changes_;
};

}  // namespace performer::fit
