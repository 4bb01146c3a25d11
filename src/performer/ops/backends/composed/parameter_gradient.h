#pragma once

#include "performer/ops/backends/composed/backward.h"
#include "performer/ops/backends/composed/chunk_gradient.h"
#include "performer/ops/backends/composed/dense_call.h"

// From the gradient of a block's features to that of its tokens; what flows into W, projection_k and
// the biases of features is added to `outputs` on the way.
namespace performer::composed {

FeatureSide::Gradients pull_back_queries(const DenseCall& p, const BackwardOutputs& outputs,
                                         const FeatureBlock& queries, const FeatureGradient& grad);

FeatureSide::Gradients pull_back_keys(const DenseCall& p, const BackwardOutputs& outputs,
                                      const KeyBlock& keys, const KeyGradient& grad);

}  // namespace performer::composed
