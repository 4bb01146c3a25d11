#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "performer/data/batch.h"
#include "performer/models/transformer.h"
#include "performer/run/precision.h"
#include "performer/run/recipe.h"
#include "performer/train/optimizer.h"

namespace performer::train {

/// What one optimizer step did.
struct StepReport {
  std::int64_t step = 0;  // 1 is the first
  double rate = 0, limit = 0;
  double loss_sum = 0, correct = 0, gradient_norm = 0;
  bool skipped = false;
  double loss_scale = 1;  // of fp16
  std::int64_t targets = 0, tokens = 0;
  std::vector<std::int64_t> samples;

  double loss() const { return loss_sum / static_cast<double>(targets); }
  bool finite() const;
  /// Only the scaled gradient left fp16's numbers: the search for a loss scale, no sign of harm.
  bool overflowed() const;
};

/// A report whose numbers may still be on their way from the device.
class PendingReport {
 public:
  PendingReport(StepReport known, const Tensor& numbers);
  StepReport wait();

 private:
  StepReport report_;
  Tensor numbers_;  // float32 [5] on the host: loss sum, correct, norm, skipped, loss scale
  std::optional<c10::Event> ready_;
};

struct StepPlan {
  std::int64_t step = 0;
  double rate = 0;
  double limit = 0;  // a mean loss above it is a spike
  bool skip_spikes = false;
};

/// Forward, backward and update over as many batches as step_tokens asks for.
class TrainingStep {
 public:
  TrainingStep(models::Transformer model, const run::Recipe& recipe, at::Device device);

  PendingReport run(const StepPlan& plan, const std::function<data::Batch()>& next_batch);

  /// Mean loss of a batch; NaN where its gradient is not finite. Forward and backward without
  /// dropout, loss scale and update: whether the weights are of use.
  double probe(const data::Batch& batch);

  run::Weights& weights() { return weights_; }
  const run::Weights& weights() const { return weights_; }
  /// Optimizer and loss scale, for checkpoints.
  run::NamedTensors state() const;

 private:
  Tensor update(const StepPlan& plan, const StepReport& known, double expected, const Tensor& sums);

  models::Transformer model_;
  run::Recipe recipe_;
  at::Device device_;
  run::Weights weights_;
  Optimizer optimizer_;
  Tensor loss_scale_, growth_;  // fp16 alone: float32 and int32 scalars
};

}  // namespace performer::train
