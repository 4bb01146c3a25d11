#pragma once

#include <cuda_runtime_api.h>

#include "performer/kernels/cuda/hopper/arguments.h"

namespace performer::kernels::cuda::hopper {

/// Gradients of tokens, given those of the sums they took part in. With the feature p_r of a token
/// and its slope f_r = p_r e_r:
///   rows  p = phi(q) 2^c z / den,  e_r = g.(S / z)_r - along,  dq = sqrt(scale) f W
///   keys  p = phi(k) 2^-c,         e_r = v.dS_r + dz_r,        dv = p dS,
///         dk = sqrt(scale) f W - [norm term] scale (sum_r f_r) k
/// sum_r f_r of a row is 0 but for what out lost in rounding: along is corrected by it.
struct PullBackArguments {
  Tokens tokens;
  Projection projection;
  int slices = 0;
  std::int64_t items = 0;
  int state_heads = 1;
  const std::uint16_t* tiles = nullptr;  // [sequences * state_heads, slices] Tile<d> of S / z or dS
  const std::uint16_t* low = nullptr;    // keys: what dS lost in rounding
  const float* column = nullptr;         // [sequences * state_heads, 64 slices] c + log2 z or -c
  const float* normalizer = nullptr;     // keys: the same of dz
  float norm = 0;                        // keys: scale where there is a norm term
  float* along = nullptr;                // rows: [items, length]
  Target x, y;                           // dq or dk, and dv
};

/// False where the tiles of so many features do not fit.
bool pull_back_fits(int dim, int slices);
cudaError_t pull_back_rows(const PullBackArguments& arguments, int dim, int multiprocessors,
                           cudaStream_t stream);
cudaError_t pull_back_keys(const PullBackArguments& arguments, int dim, int multiprocessors,
                           cudaStream_t stream);

}  // namespace performer::kernels::cuda::hopper
