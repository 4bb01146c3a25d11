#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdint>

#include "performer/models/model_config.h"

namespace performer::models {

using at::Tensor;

/// Tokens to vectors, with positions added: learned, sinusoidal (the tokens then times sqrt(E), as
/// in the first Transformer), or none here (rotary ones act inside attention).
class EmbeddingImpl : public torch::nn::Module {
 public:
  explicit EmbeddingImpl(const ModelConfig& config);

  /// tokens: int64 [B, L], the first at `position`;  returns [B, L, E]. Learned positions past
  /// max_length are an Error. index: int64 [L] on the device, those positions once more; given,
  /// they are read from there.
  Tensor forward(const Tensor& tokens, std::int64_t position, const Tensor& index = {});

  /// An Error where `length` tokens are more than there are learned positions.
  void check_length(std::int64_t length) const;

  Tensor weight;  // [V, E]

 private:
  Tensor sinusoids(std::int64_t first, std::int64_t length, const Tensor& like);

  std::int64_t dim_;
  Tensor positions_;  // [max_length, E]; undefined unless learned
  bool sinusoidal_;
  Tensor table_;  // [capacity, E] of sinusoids, in the dtype and on the device of the last call
};
TORCH_MODULE(Embedding);

}  // namespace performer::models
