#pragma once

#include "performer/kernels/cuda/common/launch.h"
#include "performer/kernels/cuda/portable/causal/call.cuh"
#include "performer/kernels/cuda/portable/projection.cuh"

// What a block of a causal walk keeps in shared memory: tiles, terms, and the work at hand.
namespace performer::kernels::cuda::portable {

/// Bit t: token t of the chunk.
using Tokens = unsigned long long;
__device__ __forceinline__ bool has(Tokens tokens, int t) { return (tokens >> t & 1U) != 0; }
__device__ __forceinline__ Tokens tokens_below(int end) {
  return end >= kTile ? ~Tokens{0} : (Tokens{1} << end) - 1;
}
/// The bits of the thread's four columns.
__device__ __forceinline__ unsigned column_bits(Tokens tokens) {
  return static_cast<unsigned>(tokens >> col0()) & 15U;
}
struct Live {
  Tokens tokens;
  __device__ __forceinline__ bool operator()(int row) const { return has(tokens, row); }
};

/// Tokens [begin, end) of a chunk.
struct ChunkPart {
  Tokens use;   // their keys that are there
  Tokens rows;  // their rows with keys; known to the gradient of keys alone
  int begin, end;
  bool reached;  // keys before them reached the state
};

/// Pointers and sizes of the work at hand lie here too: they would fill the registers.
struct CausalShared {
  float tiles[4][kTileFloats];
  float parts[kWarps * kTile];
  float terms[kTile];  // of keys
  float shift[kTile];  // of query rows, and what 1 / den = inverse 2^-shift, along = g . out are
  float inverse[kTile];
  float along[kTile];
  float total[kTile];
  float normalizer[kTile];  // of a slice of features
  int flags[kTile];
  CausalSegment segment;
  CausalState state;
  CausalScratch scratch;
  Projection key_projection;    // of the segment
  Projection query_projection;  // of the query head at hand
  std::int64_t begin;           // of the chunk, in the sequence
  int count;                    // of its tokens
  Tokens live, rows;            // its keys that are there, its rows with keys
  ChunkPart part;               // at hand
  Rows keys, values;            // of the chunk
  Rows queries, out, gradient;  // of the chunk and of the query head at hand

  __device__ __forceinline__ float* tile(int i) { return tiles[opaque(i)]; }
};
inline constexpr int kCausalBytes = sizeof(CausalShared);
static_assert(kCausalBytes <= kSharedAnywhere);

/// Blocks of a walk that a multiprocessor holds at once: two in 164 KB of shared memory and more,
/// one in 100 KB.
#if defined(__CUDA_ARCH__) && \
    (__CUDA_ARCH__ == 860 || __CUDA_ARCH__ == 890 || __CUDA_ARCH__ >= 1200)
inline constexpr int kResidentBlocks = 1;
#else
inline constexpr int kResidentBlocks = 2;
#endif

__device__ __forceinline__ CausalShared& causal_shared() {
  extern __shared__ float4 causal_memory[];
  return *reinterpret_cast<CausalShared*>(causal_memory);
}

/// The tokens whose flag every fourth thread knows (thread t: token t / 4). Ends in a barrier.
__device__ __forceinline__ Tokens gather_tokens(CausalShared& s, bool flag) {
  if (threadIdx.x % 4 == 0) s.flags[threadIdx.x / 4] = flag ? 1 : 0;
  __syncthreads();
  const unsigned low = __ballot_sync(0xffffffffU, s.flags[lane_id()] != 0);
  const unsigned high = __ballot_sync(0xffffffffU, s.flags[lane_id() + 32] != 0);
  return static_cast<Tokens>(high) << 32U | low;
}

}  // namespace performer::kernels::cuda::portable
