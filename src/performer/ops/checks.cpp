#include "performer/ops/checks.h"

#include <cmath>
#include <limits>

namespace performer {

void check_defined(const char* op, const NamedTensor& t) {
  TORCH_CHECK(t.tensor.defined(), op, ": ", t.name, " must be a defined tensor");
}

void check_device(const char* op, const NamedTensor& t, const NamedTensor& other) {
  TORCH_CHECK(t.tensor.device() == other.tensor.device(), op, ": ", t.name,
              " must be on the device of ", other.name, ", ", other.tensor.device(), ", got ",
              t.tensor.device());
}

void check_dense(const char* op, const char* name, const Tensor& t) {
  TORCH_CHECK(!t.defined() || t.layout() == at::kStrided, op, ": ", name,
              " must be a dense tensor, got ", t.layout());
}

void check_float_range(const char* op, const char* name, double value, at::ScalarType dtype) {
  constexpr double kLeast = std::numeric_limits<float>::min();
  constexpr double kMost = std::numeric_limits<float>::max();
  const double size = std::abs(value);
  TORCH_CHECK(dtype == at::kDouble || size == 0 || (size >= kLeast && size <= kMost), op, ": ",
              name, " must lie in the range of float32, ", kLeast, " ... ", kMost,
              " (float64 inputs alone take others), got ", value);
}

bool has_values(const Tensor& t) {
  return t.has_storage() && !t.is_meta() && !t.unsafeGetTensorImpl()->is_python_dispatch() &&
         !t.key_set().has(c10::DispatchKey::Functionalize);
}

}  // namespace performer
