#pragma once

#include <vector>

#include "performer/models/block.h"
#include "performer/models/pass.h"

namespace performer::models {

/// How the gradients of a reversible stack are found.
enum class Reversal : std::uint8_t {
  kReconstruct,  // inputs of each block computed back from its outputs: memory of one block
  kStore,        // plain autograd: the definition
};

/// Blocks as a reversible network (RevNet, Reformer): two streams that start as x,
///   a += attend(b);  b += feed(a)    block after block,
/// and end as their mean.  x: [B, L, E];  returns [B, L, E]. Reconstruction is exact to rounding of
/// the streams' dtype. The blocks must outlive the graph.
Tensor run_reversible(std::vector<Block>& blocks, const Tensor& x, const Pass& pass,
                      Reversal reversal = Reversal::kReconstruct);

}  // namespace performer::models
