#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <limits>
#include <vector>

#include "performer/models/transformer.h"

/// What the attention of a model does on sample rows, head by head, and how well random features
/// would stand for it.
namespace performer::infer {

inline constexpr double kNotMeasured = std::numeric_limits<double>::quiet_NaN();

/// Of features of a head, against exact attention on the same queries, keys and values.
struct FeatureQuality {
  std::int64_t features = 0;
  double error = kNotMeasured;  // |out - exact| / |exact|
  double predicted =
      kNotMeasured;  // relative variance of one weight (Lemma 2); not for fitted ones
  double effective_samples = kNotMeasured;
};

struct HeadQuality {
  std::int64_t layer = 0, head = 0;
  double query_norm = 0, key_norm = 0;  // mean |x|^2, |y|^2, x = sqrt(scale) q, y = sqrt(scale) k
  double squared_sum = 0;               // mean |x + y|^2 over pairs
  double uniform_error = 0;             // of the plain average of the values that a row may see
  double suggested_features = kNotMeasured;  // where the predicted variance is 0.01; may be inf
  FeatureQuality own;  // the model's; not measured for attention of other kinds
  std::vector<FeatureQuality> by_features;  // positive orthogonal ones, drawn as the model would

  /// Whether its own features, or with none the widest of by_features, beat plain averaging.
  bool beats_average() const;
};

struct QualitySample {
  std::vector<at::Tensor> rows;  // int64 [L] each, on the model's device, without padding
  std::vector<std::int64_t> features = {64, 128, 256};
  std::int64_t queries = 64;  // of a row, that are compared
  std::int64_t near = -1;     // of `features`: block of their near field; -1: as in the model
};

/// Heads of the layers that have queries and keys, in order; each number is the mean over the rows
/// (errors: the root of the mean square). kNotMeasured where no row has a pair that features stand
/// for. O(queries L) of work a head and row, no L x L in memory.
std::vector<HeadQuality> attention_quality(models::Transformer& model, const QualitySample& sample);

/// |h' - h| / |h| over all rows together, h the hidden states of `exact` and h' those of `estimate`
/// after each block, and after the last norm where there is one (the paper's Fig. 14).
std::vector<double> error_growth(models::Transformer& exact, models::Transformer& estimate,
                                 const std::vector<at::Tensor>& rows);

}  // namespace performer::infer
