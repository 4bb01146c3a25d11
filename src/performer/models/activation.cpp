#include "performer/models/activation.h"

#include <ATen/ATen.h>

namespace performer::models {

Activation parse_activation(const std::string& name) {
  if (name == "relu") return Activation::kRelu;
  if (name == "gelu_tanh") return Activation::kGeluTanh;
  return name == "gelu" ? Activation::kGelu : Activation::kSwiglu;
}

Tensor activate(const Tensor& x, Activation activation) {
  switch (activation) {
    case Activation::kRelu:
      return at::relu(x);
    case Activation::kGelu:
      return at::gelu(x);
    case Activation::kGeluTanh:
      return at::gelu(x, "tanh");
    case Activation::kSwiglu:
      break;
  }
  const auto halves = x.chunk(2, -1);
  return at::silu(halves[0]) * halves[1];
}

}  // namespace performer::models
