#pragma once

#include <ATen/core/Tensor.h>

/// What the checks of every operator share.
namespace performer {

using at::Tensor;

/// A tensor under the name that messages give it.
struct NamedTensor {
  const char* name;
  const Tensor& tensor;
};

void check_defined(const char* op, const NamedTensor& t);

/// Throws unless t lies on the device of `other`.
void check_device(const char* op, const NamedTensor& t, const NamedTensor& other);

/// Throws where t is sparse: ATen's own refusals name no argument. Undefined tensors pass.
void check_dense(const char* op, const char* name, const Tensor& t);

/// Throws where an option that is not 0 would be 0 or infinity in the arithmetic for `dtype`, which
/// is float32 for all but float64: the result would be NaN, or that of another option.
void check_float_range(const char* op, const char* name, double value, at::ScalarType dtype);

/// Whether the values of t can be looked at: not for meta tensors, wrapped ones (vmap) and those of
/// a tracer.
bool has_values(const Tensor& t);

}  // namespace performer
