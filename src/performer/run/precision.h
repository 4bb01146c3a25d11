#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "performer/models/transformer.h"
#include "performer/run/tensor_file.h"

namespace performer::run {

using at::Tensor;

/// The weights of a model twice: float32 masters that the optimizer moves and checkpoints keep, and
/// the model's own parameters in the precision of the arithmetic. With fp32 both are one.
class Weights {
 public:
  Weights(models::Transformer model, at::ScalarType precision);

  const NamedTensors& masters() const { return masters_; }
  const std::vector<Tensor>& gradients() const { return gradients_; }  // float32, of the masters

  /// Adds the parameters' gradients to the masters' and clears them.
  void collect_gradients();
  void zero_gradients();
  /// Copies the masters into the model.
  void publish();

 private:
  bool shared() const { return precision_ == at::kFloat; }

  at::ScalarType precision_;
  NamedTensors masters_;
  std::vector<Tensor> parameters_, gradients_;
};

at::ScalarType parse_precision(const std::string& name);

}  // namespace performer::run
