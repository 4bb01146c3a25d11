#pragma once

#include <torch/csrc/autograd/custom_function.h>

#include <utility>

namespace performer::models {

/// Anything a custom autograd function must keep for its backward pass beside tensors.
template <class T>
class Kept : public torch::CustomClassHolder {
 public:
  explicit Kept(T value) : value_(std::move(value)) {}

  static void put(torch::autograd::AutogradContext* ctx, T value) {
    ctx->saved_data["kept"] =
        c10::IValue::make_capsule(c10::make_intrusive<Kept>(std::move(value)));
  }
  static const T& get(torch::autograd::AutogradContext* ctx) {
    return static_cast<const Kept&>(*ctx->saved_data["kept"].toCapsule()).value_;
  }

 private:
  T value_;
};

}  // namespace performer::models
