#pragma once

#include <cuda_runtime_api.h>

#include "performer/kernels/cuda/hopper/arguments.h"

namespace performer::kernels::cuda::hopper {

/// Every query against the state of its head: p_r = 2^(l_r + c_r - shift) z_r,
/// out = p (S / z) / sum p.
struct OutputArguments {
  Tokens tokens;  // queries
  Projection projection;
  int slices = 0;
  std::int64_t items = 0;  // sequences * query heads
  int state_heads = 1;
  const std::uint16_t* tiles = nullptr;  // [sequences * state_heads, slices] SumTile<d>
  const float* column = nullptr;         // [sequences * state_heads, 64 slices] c + log2 z
  const float* factor = nullptr;         // [sequences * state_heads, d] of the tiles' columns
  Target out;
  float* row_sum = nullptr;
  std::int32_t* row_log2 = nullptr;
};

/// False where the tiles of so many features do not fit.
bool output_fits(int dim, int slices);
cudaError_t write_output(const OutputArguments& arguments, int dim, int multiprocessors,
                         cudaStream_t stream);

}  // namespace performer::kernels::cuda::hopper
