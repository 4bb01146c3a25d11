#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "performer/kernels/params.h"
#include "performer/ops/favor/results.h"

namespace performer::backends {

/// A call in the plain pointers that the fused kernels take, and the tensors that keep those alive.
/// On the CPU parameters stay as they are and packed offsets are checked. On CUDA parameters become
/// float32 and offsets int64 on the device; nothing waits for it, so that offsets which lie there
/// are not checked: the kernels clamp them.
struct KernelCall {
  kernels::FavorProblem problem;
  std::vector<Tensor> kept;

  explicit KernelCall(const FavorArgs& args);

 private:
  Tensor keep(Tensor t);
  float* state_tensor(const Tensor& t);
  kernels::Parameter parameter(const Tensor& t, std::int64_t trailing);
  void set_key_bias(const Tensor& bias);
  void set_near(const FavorArgs& args);
  void set_offsets(const FavorArgs& args);
};

kernels::TokenView token_view(const Tensor& t);

/// log2_scale may be undefined.
kernels::StateView state_view(const Tensor& kv, const Tensor& normalizer,
                              const Tensor& log2_scale = {});

kernels::NearStateView near_state_view(const Tensor& keys, const Tensor& values, const Tensor& bias,
                                       const Tensor& position);

/// "cpu/avx512/fp32/positive/causal" for the path "cpu/avx512"; "/near" follows where there is one.
std::string kernel_name(const std::string& path, const FavorArgs& args);

/// Where `result` is written to.
kernels::ForwardOutputs forward_outputs(const FavorResult& result);

/// What a backward pass reads beside the problem, and where its gradients go; contiguous copies,
/// zeros and scratch are kept.
struct KernelBackward {
  kernels::BackwardInputs inputs;
  kernels::BackwardOutputs outputs;
  std::vector<Tensor> kept;

  KernelBackward(const FavorSaved& saved, const FavorArgs& args, const FavorGradients& grads);

 private:
  Tensor keep(Tensor t);
};

}  // namespace performer::backends
