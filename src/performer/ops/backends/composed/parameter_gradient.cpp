#include "performer/ops/backends/composed/parameter_gradient.h"

#include <ATen/ATen.h>

#include <cmath>

namespace performer::composed {
namespace {

// Sums the gradient of a parameter over batch and length, then to the parameter's heads.
void add_parameter(const Tensor& grad, const Tensor& per_head) {
  grad.add_(reduce_heads(per_head, grad.size(0)));
}

}  // namespace

FeatureSide::Gradients pull_back_queries(const DenseCall& p, const BackwardOutputs& outputs,
                                         const FeatureBlock& queries, const FeatureGradient& grad) {
  auto g = p.query.backward(queries, grad);
  if (outputs.projection.defined()) {
    const Tensor dw = at::matmul(g.argument.transpose(-1, -2), queries.x).sum(0);  // [Hs, G, M, D]
    add_parameter(outputs.projection, dw.flatten(0, 1) * std::sqrt(p.query.scale));
  }
  if (outputs.bias_q.defined())
    add_parameter(outputs.bias_q, grad.features.sum(at::IntArrayRef{0, 3}).flatten(0, 1));
  return g;
}

FeatureSide::Gradients pull_back_keys(const DenseCall& p, const BackwardOutputs& outputs,
                                      const KeyBlock& keys, const KeyGradient& grad) {
  auto g = p.key.backward(keys.features, grad.features);
  const Tensor& dw_target =
      p.args.projection_k.defined() ? outputs.projection_k : outputs.projection;
  if (dw_target.defined()) {
    const Tensor dw = at::matmul(g.argument.transpose(-1, -2), keys.features.x).sum(0);
    add_parameter(dw_target, dw * std::sqrt(p.key.scale));
  }
  if (outputs.bias_k.defined())
    add_parameter(outputs.bias_k, grad.features.features.sum(at::IntArrayRef{0, 2}));
  return g;
}

}  // namespace performer::composed
