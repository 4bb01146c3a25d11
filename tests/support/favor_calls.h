#pragma once

#include <ATen/ATen.h>
#include <ATen/core/stack.h>
#include <ATen/CPUGeneratorImpl.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "performer/ops/favor/fields.h"

/// Right calls of favor_attention and its relatives, which operator_cases.cpp lists.
namespace performer::testing {

/// Arguments by their names in the schema.
using Named = std::map<std::string, c10::IValue>;

inline constexpr std::int64_t kB = 2, kH = 4, kHkv = 2, kL = 5, kD = 3, kDv = 4, kM = 6;

/// The same numbers from each new object.
class RandomTensors {
 public:
  Tensor operator()(at::IntArrayRef sizes, at::ScalarType dtype = at::kFloat) {
    return at::randn(sizes, generator_, at::kDouble).to(dtype);
  }
  Tensor mask(at::IntArrayRef sizes) { return (*this)(sizes).gt(-0.5); }

 private:
  at::Generator generator_ = at::detail::createCPUGenerator(1);
};

torch::jit::Stack call(const std::string& op, torch::jit::Stack stack);
/// The arguments in the order of the schema; those that are not given are None, and whole numbers 0.
torch::jit::Stack in_order(const std::string& op, const Named& given);

Named attention(const std::string& map, bool causal, at::ScalarType dtype = at::kFloat);
Named every_option(at::ScalarType dtype = at::kFloat);
Named packed(const std::string& map, bool causal);
/// A state of this very call's features, fingerprint and all.
Named continued();
Named without_projection();
Named unnormalised();
Named step();
Named merged();

/// With a near field of 2 tokens a block; the second one behind a state that ends within a block.
Named near();
Named near_with_every_option(at::ScalarType dtype = at::kFloat);
Named near_packed();
Named near_alone();  // no feature
Named near_step();
Named near_merged();

/// What autograd hands the backward operator after the forward call `a`; the gradients of q, k, v
/// and of `parameters` are asked for.
using Parameters = std::vector<Tensor FavorArgs::*>;
Named backward_of(Named a, const Parameters& parameters);

}  // namespace performer::testing
