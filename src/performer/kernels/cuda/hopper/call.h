#pragma once

#include <cuda_runtime_api.h>

#include "performer/kernels/cuda/common/workspace.h"
#include "performer/kernels/cuda/hopper/arguments.h"
#include "performer/kernels/cuda/hopper/pack.h"

// A FavorProblem in the arguments of this folder's kernels.
namespace performer::kernels::cuda::hopper {

/// Whether tokens lie near enough to each other for 32-bit offsets.
bool rows_fit(const TokenView& tokens);

Target target(const TokenView& tokens);
/// Boxes of 64 tokens of one head, swizzled as tiles are. False where TMA cannot reach the tensor.
bool make_map(CUtensorMap& map, const TokenView& tokens, const FavorProblem& problem,
              std::int64_t heads, std::int64_t length);
Tokens keys(const FavorProblem& problem);
Tokens queries(const FavorProblem& problem);
/// Queries with their gradients.
Tokens rows(const FavorProblem& problem, const BackwardInputs& inputs);

/// One side's projection: where it is packed, and the kernel's arguments.
struct Side {
  PackArguments pack;
  Projection projection;
};

/// The keys' and the queries': the same where they have one projection.
struct Sides {
  Side key, query;
};

/// Parts of a Projection that not every call wants.
struct SideParts {
  bool plain = false, norm = false;
};
Sides take_sides(Workspace& workspace, const FavorProblem& problem, int slices, SideParts parts);
/// Whether queries and keys have one projection.
bool one_side(const FavorProblem& problem);
cudaError_t pack_sides(const FavorProblem& problem, const Sides& sides, cudaStream_t stream);

}  // namespace performer::kernels::cuda::hopper
