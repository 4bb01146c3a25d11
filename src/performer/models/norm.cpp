#include "performer/models/norm.h"

#include <ATen/ATen.h>

namespace performer::models {

NormImpl::NormImpl(const ModelConfig& config)
    : eps_(config.norm_eps), weight_(register_parameter("weight", at::ones({config.dim}))) {
  if (config.norm == "layer") bias_ = register_parameter("bias", at::zeros({config.dim}));
}

Tensor NormImpl::forward(const Tensor& x) const {
  return bias_.defined() ? at::layer_norm(x, weight_.sizes(), weight_, bias_, eps_)
                         : at::rms_norm(x, weight_.sizes(), weight_, eps_);
}

}  // namespace performer::models
