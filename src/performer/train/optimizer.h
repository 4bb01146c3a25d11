#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "performer/run/precision.h"
#include "performer/run/train_config.h"

namespace performer::train {

/// Adam with decoupled (AdamW) or plain weight decay, in one fused pass over all weights:
///   g' = g / divisor;  m = b1 m + (1-b1) g';  v = b2 v + (1-b2) g'^2;  w -= rate m^ / (sqrt(v^) +
///   eps).
/// A step with skip = 1 changes nothing. divisor and skip stay on the device: no step waits for it.
class Optimizer {
 public:
  Optimizer(const run::OptimizerConfig& config, const run::NamedTensors& weights);

  void step(const std::vector<Tensor>& gradients, double rate, const Tensor& divisor,
            const Tensor& skip);

  /// mean.NAME, square.NAME and steps, for checkpoints.
  run::NamedTensors state() const;

 private:
  struct Group {
    std::vector<std::size_t> members;  // indices into the weights
    std::vector<Tensor> weights, means, squares, steps;
    double decay = 0;
  };

  run::OptimizerConfig config_;
  run::NamedTensors weights_;
  std::vector<Tensor> means_, squares_;
  Tensor steps_;  // float32 scalar: steps taken
  std::vector<Group> groups_;
};

}  // namespace performer::train
