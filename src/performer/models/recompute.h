#pragma once

#include "performer/models/block.h"
#include "performer/models/pass.h"

namespace performer::models {

/// block.forward(x, pass) that stores x alone and computes the rest again in the backward pass: the
/// same gradients bit for bit. Differentiable once; the block must outlive the graph.
Tensor run_recomputed(BlockImpl& block, const Tensor& x, const Pass& pass);

}  // namespace performer::models
