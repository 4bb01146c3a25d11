#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdint>

#include "performer/models/model_config.h"
#include "performer/models/norm.h"

namespace performer::models {

using at::Tensor;

/// Tokens to vectors, with positions added: learned, sinusoidal (the tokens then times sqrt(E), as
/// in the first Transformer), or none here (rotary ones act inside attention). Where the config
/// says so, the first row of the token types is added too, and a norm comes last.
class EmbeddingImpl : public torch::nn::Module {
 public:
  explicit EmbeddingImpl(const ModelConfig& config);

  /// tokens: int64 [B, L], the first at `position`;  returns [B, L, E]. Learned positions past
  /// max_length are an Error. index: int64 [L] on the device, those positions once more; given,
  /// they are read from there. key_mask: as ModelInput's; token dropout counts real tokens.
  Tensor forward(const Tensor& tokens, std::int64_t position, const Tensor& index = {},
                 const Tensor& key_mask = {});

  /// An Error where `length` tokens are more than there are learned positions.
  void check_length(std::int64_t length) const;

  Tensor weight;  // [V, E]

 private:
  Tensor sinusoids(std::int64_t first, std::int64_t length, const Tensor& like);
  Tensor with_positions(const Tensor& x, std::int64_t position, const Tensor& index);

  std::int64_t dim_;
  Tensor positions_;  // [max_length, E]; undefined unless learned
  bool sinusoidal_;
  std::int64_t dropped_token_;  // -1: none
  Tensor types_;                // [token types, E]; undefined: none
  Norm norm_{nullptr};
  Tensor table_;  // [rows, E] of sinusoids, in the dtype and on the device of the last call
  std::int64_t begin_ = 0;  // position of its first row
};
TORCH_MODULE(Embedding);

}  // namespace performer::models
