#include "performer/models/linear.h"

#include <ATen/ATen.h>

namespace performer::models {

LinearImpl::LinearImpl(std::int64_t in, std::int64_t out, bool bias)
    : weight(register_parameter("weight", at::zeros({out, in}))) {
  if (bias) this->bias = register_parameter("bias", at::zeros({out}));
}

Tensor LinearImpl::forward(const Tensor& x) const {
  // Of two dimensions: at::linear then takes strided rows and adds the bias inside the GEMM.
  auto sizes = x.sizes().vec();
  sizes.back() = weight.size(0);
  return at::linear(x.reshape({-1, weight.size(1)}), weight, bias).view(sizes);
}

}  // namespace performer::models
