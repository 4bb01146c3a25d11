#include "performer/kernels/cuda/hopper/pack.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "performer/kernels/cuda/common/dispatch.h"
#include "performer/kernels/cuda/common/launch.h"
#include "performer/kernels/cuda/common/problem.h"
#include "performer/kernels/cuda/hopper/tile.cuh"

namespace performer::kernels::cuda::hopper {
namespace {

constexpr int kThreads = 256;
constexpr int kParts = 4;

// kParts blocks per (head, slice); a warp takes two features.
template <int kDim>
__global__ void __launch_bounds__(kThreads) pack_kernel(const __grid_constant__ PackArguments a) {
  const int tile_index = static_cast<int>(blockIdx.x / kParts);
  const int slice = tile_index % a.slices;
  const std::int64_t head = tile_index / a.slices;
  const int first = static_cast<int>(blockIdx.x % kParts) * (kRows / kParts);
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const int rows = a.mirrored ? a.features / 2 : a.features;
  const auto* weights =
      static_cast<const float*>(a.weights.data) + head / (a.heads / a.weights.heads) * rows * kDim;
  const std::int64_t tile = tile_index * static_cast<std::int64_t>(Tile<kDim>::kBytes);
  for (int row = first + warp; row < first + kRows / kParts; row += kThreads / 32) {
    const int feature = slice * kRows + row;
    const bool inside = feature < a.features;
    const bool negative = feature >= rows;
    float square = 0;
    for (int i = lane; i < kDim; i += 32) {
      float w =
          inside
              ? weights[static_cast<std::int64_t>(negative ? feature - rows : feature) * kDim + i]
              : 0;
      if (negative) w = -w;
      const float scaled = w * a.log2_factor;
      square = fmaf(scaled, scaled, square);
      std::uint16_t high, low;
      if (a.half) {
        const __half rounded = __float2half_rn(scaled);
        high = __half_as_ushort(rounded);
        low = __half_as_ushort(__float2half_rn(scaled - __half2float(rounded)));
      } else {
        const __nv_bfloat16 rounded = __float2bfloat16_rn(scaled);
        high = __bfloat16_as_ushort(rounded);
        low = __bfloat16_as_ushort(__float2bfloat16_rn(scaled - __bfloat162float(rounded)));
      }
      const int at = Tile<kDim>::offset(row, i / 8) + i % 8 * 2;
      *reinterpret_cast<std::uint16_t*>(reinterpret_cast<char*>(a.high) + tile + at) = high;
      *reinterpret_cast<std::uint16_t*>(reinterpret_cast<char*>(a.low) + tile + at) = low;
      if (a.plain != nullptr) {
        *reinterpret_cast<__nv_bfloat16*>(reinterpret_cast<char*>(a.plain) + tile + at) =
            __float2bfloat16_rn(w * a.plain_factor);
      }
    }
    if (a.norm != nullptr) {
      for (int step = 16; step > 0; step /= 2) square += __shfl_xor_sync(~0U, square, step);
      if (lane == 0) a.norm[static_cast<std::int64_t>(tile_index) * kRows + row] = sqrtf(square);
    }
    if (lane == 0) {
      float bias = 0;
      if (a.bias.data != nullptr && inside) {
        bias = static_cast<const float*>(
                   a.bias.data)[head / (a.heads / a.bias.heads) * a.features + feature] *
               static_cast<float>(kLog2E);
      }
      a.column[static_cast<std::int64_t>(tile_index) * kRows + row] = inside ? bias : -INFINITY;
    }
  }
}

}  // namespace

cudaError_t pack_projection(const PackArguments& a, int dim, cudaStream_t stream) {
  return with_value<32, 64, 128>(dim, [&](auto width) {
    return launch(pack_kernel<width()>, {a.heads * a.slices * kParts, kThreads}, stream, a);
  });
}

}  // namespace performer::kernels::cuda::hopper
