#pragma once

#include <ATen/core/Tensor.h>

#include "performer/ops/backends/composed/dense_call.h"

namespace performer::composed {

/// What the forward pass left and the gradients that come in; views over one dense call.
struct BackwardInputs {
  Tensor grad_out;                    // [B, H, Lq, Dv]
  Tensor row_sum, row_log2_scale;     // [B, H, Lq]
  Tensor kv, normalizer, log2_scale;  // final state
  Tensor grad_kv, grad_normalizer;    // of the final state; undefined: 0
  Tensor grad_near_keys, grad_near_values, grad_near_bias;
};

/// Where gradients go: views of the operator's outputs. Those of parameters are added to (float64
/// or float32 buffers in the shape [heads, ...]); undefined ones are not computed.
struct BackwardOutputs {
  Tensor q, k, v;
  Tensor projection, projection_k;  // [heads, M, D]
  Tensor bias_q, bias_k;            // [heads, M']
  Tensor key_bias;                  // [B, heads, Lk]
  Tensor query_bias;                // [B, heads, Lq]
  Tensor state_kv, state_normalizer;
  Tensor state_near_keys, state_near_values, state_near_bias;
};

void backward(const DenseCall& call, const BackwardInputs& inputs, const BackwardOutputs& outputs);

}  // namespace performer::composed
