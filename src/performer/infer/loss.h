#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "performer/data/batch.h"
#include "performer/models/transformer.h"

namespace performer::infer {

using at::Tensor;

/// A batch on the model's device.
struct PlacedBatch : data::Batch {
  Tensor positions;  // int64 [N]: where in [B * L] the targets are; undefined: nearly everywhere
};

/// Copies without waiting for the device.
PlacedBatch place(const data::Batch& batch, at::Device device);

/// Of one batch, on the model's device.
struct LossParts {
  Tensor sum;              // float32 scalar: sum of -log p(target), differentiable
  Tensor correct;          // float32 scalar: targets that are the model's first choice
  std::int64_t count = 0;  // targets
};

/// Runs the model on `batch` with the head that its config names. Log-probabilities are float32
/// whatever the model's precision.
LossParts compute_loss(models::Transformer& model, const PlacedBatch& batch);

/// The same row by row, without gradients: float64 [B] on the CPU each.
struct RowLosses {
  Tensor sum, correct, count;
};
RowLosses compute_row_losses(models::Transformer& model, const PlacedBatch& batch);

}  // namespace performer::infer
