#pragma once

#include <cuda_runtime_api.h>

#include <type_traits>

namespace performer::kernels::cuda {

/// body(std::integral_constant<int, value>) where `value` is one of kValues, else an error.
template <int... kValues, class Body>
cudaError_t with_value(int value, const Body& body) {
  cudaError_t error = cudaErrorInvalidValue;
  const auto attempt = [&](auto constant) {
    if (value == constant()) error = body(constant);
  };
  (attempt(std::integral_constant<int, kValues>{}), ...);
  return error;
}

}  // namespace performer::kernels::cuda
