#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

namespace performer::models {

using at::Tensor;

enum class Activation : std::uint8_t { kRelu, kGelu, kGeluTanh, kSwiglu };

/// Of its name in a config.
Activation parse_activation(const std::string& name);

/// f(x), element by element; swiglu: silu(a) b, where x = [a b] along the last dimension.
Tensor activate(const Tensor& x, Activation activation);

}  // namespace performer::models
