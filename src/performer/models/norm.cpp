#include "performer/models/norm.h"

#include <ATen/ATen.h>

namespace performer::models {
namespace {
constexpr double kEps = 1e-5;
}  // namespace

NormImpl::NormImpl(const std::string& kind, std::int64_t dim)
    : weight_(register_parameter("weight", at::ones({dim}))) {
  if (kind == "layer") bias_ = register_parameter("bias", at::zeros({dim}));
}

Tensor NormImpl::forward(const Tensor& x) const {
  return bias_.defined() ? at::layer_norm(x, weight_.sizes(), weight_, bias_, kEps)
                         : at::rms_norm(x, weight_.sizes(), weight_, kEps);
}

}  // namespace performer::models
