#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <vector>

#include "performer/models/linear.h"
#include "performer/models/model_config.h"

namespace performer::models {

/// Linear layers with ReLU between them: widths[0] -> widths[1] -> ... Parameters 0.*, 1.*, ...
class MlpImpl : public torch::nn::Module {
 public:
  explicit MlpImpl(const std::vector<std::int64_t>& widths);
  Tensor forward(Tensor x) const;

 private:
  std::vector<Linear> layers_;
};
TORCH_MODULE(Mlp);

/// From pooled sequences to classes: E -> ff_dim -> classes; of pairs 4E -> ff_dim -> ff_dim/2 ->
/// classes, as in the Long Range Arena.
Mlp make_class_head(const ModelConfig& config);

/// Mean over the real tokens.  hidden: [B, L, E];  key_mask: bool [B, L] or undefined;  [B, E].
Tensor pool(const Tensor& hidden, const Tensor& key_mask);

/// [a, b, a b, a - b]: [B, E], [B, E] -> [B, 4E].
Tensor compare(const Tensor& a, const Tensor& b);

}  // namespace performer::models
