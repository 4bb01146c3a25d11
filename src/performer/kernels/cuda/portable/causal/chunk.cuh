#pragma once

#include "performer/kernels/cuda/common/launch.h"
#include "performer/kernels/cuda/portable/causal/call.cuh"
#include "performer/kernels/cuda/portable/projection.cuh"

// The pieces of a causal chunk of 64 tokens that all walks share. Features of a chunk lie in the
// block's scratch, feature-major [mp][64]: as rows of a result they are features, as columns
// tokens. Where a thread reads there what it wrote itself (rows row0().., columns col0()..), no
// barrier is needed.
namespace performer::kernels::cuda::portable {

/// Features relative to scales that no later token decides may exceed them by 2^50; a token with
/// more starts a part of the chunk of its own.
inline constexpr float kHeadroom = 50;
/// Floats of a slice of features in the scratch.
inline constexpr int kTileArea = kTile * kTile;

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

/// Blocks of a walk that a multiprocessor holds at once, by its shared memory: 164 KB and more, or
/// 100 KB.
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

/// acc += a b over a whole tile of depth.
__device__ __forceinline__ void product(float (&acc)[4][4], const float* a, const float* b) {
  gemm(acc, a, b, opaque(kTile));
}

/// The thread's part of a 64 x 64 tile in global memory.
__device__ __forceinline__ void load_tile(float (&acc)[4][4], const float* from, int stride) {
  from += opaque(row0()) * stride + opaque(col0());
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float4 x = *reinterpret_cast<const float4*>(from + i * stride);
    acc[i][0] = x.x, acc[i][1] = x.y, acc[i][2] = x.z, acc[i][3] = x.w;
  }
}
__device__ __forceinline__ void store_tile(const float (&acc)[4][4], float* to, int stride) {
  to += opaque(row0()) * stride + opaque(col0());
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    *reinterpret_cast<float4*>(to + i * stride) =
        make_float4(acc[i][0], acc[i][1], acc[i][2], acc[i][3]);
  }
}
/// The thread's rows of an array, from `first` on.
__device__ __forceinline__ void load_rows_of(float (&x)[4], const float* from, int first) {
  const float4 y = *reinterpret_cast<const float4*>(from + first + row0());
  x[0] = y.x, x[1] = y.y, x[2] = y.z, x[3] = y.w;
}
__device__ __forceinline__ void multiply_rows(float (&acc)[4][4], const float (&factor)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) acc[i][j] *= factor[i];
  }
}

/// Rows of features beyond m stay 0, whatever values 0 was multiplied with.
__device__ __forceinline__ void clear_beyond(float (&acc)[4][4], const Problem& p, int first) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (first + row0() + i < p.features) continue;
#pragma unroll
    for (int j = 0; j < 4; ++j) acc[i][j] = 0;
  }
}

/// Begins a segment. Ends in a barrier.
__device__ __forceinline__ void begin_segment(CausalShared& s, const CausalCall& call,
                                              std::int64_t work) {
  __syncthreads();
  if (threadIdx.x == 0) {
    s.segment = CausalSegment(call, work);
    s.state = call.state(call.segments > 1 ? work : blockIdx.x);
    s.scratch = call.block_scratch();
    s.key_projection = key_projection(call.problem, s.segment.head);
  }
  __syncthreads();
}

/// Row 0 of the tokens from `begin` (of the segment's sequence) on.
__device__ __forceinline__ Rows chunk_rows(const TokenView& view, const Problem& p,
                                           const CausalSegment& segment, std::int64_t head,
                                           std::int64_t begin, std::int64_t width) {
  return rows_of(view, p.dtype, segment.span.batch, head, segment.span.begin + begin,
                 segment.end - begin, width);
}
__device__ __forceinline__ std::int64_t key_head(const Problem& p, const CausalSegment& segment) {
  return head_of(segment.head, p.state_heads, p.key_heads);
}

/// acc[feature][token] = (W x + bias), features from `first` on; beyond m -inf (exponential maps)
/// or 0. A single block of dims of x stays in x_tile: `resident` where it is there already. Starts
/// with a barrier.
template <class LiveRows>
__device__ __forceinline__ void project_slice(float (&acc)[4][4], const Problem& p,
                                              const Projection& w, const Rows& x,
                                              const LiveRows& live, int first, bool resident,
                                              float* x_tile, float* w_tile) {
  clear(acc);
  for (int column = 0; column < w.d; column += kTile) {
    __syncthreads();
    load_projection(w_tile, w, first, column);
    if (!resident) load_columns(x_tile, x, column, live);
    __syncthreads();
    gemm(acc, w_tile, x_tile, depth_of(w.d, column));
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int feature = first + row0() + i;
    const float bias = w.log2_bias(feature);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      acc[i][j] = feature < w.m ? acc[i][j] + bias : (p.exponential ? -infinity() : 0.0F);
    }
  }
}

/// Loads the keys' terms: what each adds to its log2 features. Returns which keys are there. With
/// one block of dims the keys are in x_tile afterwards. Ends in a barrier.
__device__ __forceinline__ Tokens load_key_terms(CausalShared& s, const Problem& p,
                                                 const KeyTerms& keys, const Rows& x,
                                                 float* x_tile) {
  float square = 0;
  for (int column = 0; column < x.width; column += kTile) {
    __syncthreads();
    load_columns(x_tile, x, column, keys);
    __syncthreads();
    square = add_squares(x_tile, square);
  }
  const bool live = store_terms(s.terms, keys, x.count, p.half_norm != 0 ? square : 0.0F);
  return gather_tokens(s, live);
}
/// l + the keys' terms.
__device__ __forceinline__ void add_terms(float (&acc)[4][4], const CausalShared& s,
                                          const Problem& p) {
  if (!p.exponential) return;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const float term = s.terms[col0() + j];
#pragma unroll
    for (int i = 0; i < 4; ++i) acc[i][j] += term;
  }
}

/// The chunk at token `begin` of the sequence. Starts and ends with a barrier.
__device__ __forceinline__ void begin_chunk(CausalShared& s, const CausalCall& call,
                                            std::int64_t begin) {
  const Problem& p = call.problem;
  __syncthreads();
  if (threadIdx.x == 0) {
    s.begin = begin;
    s.count = static_cast<int>(min(s.segment.end - begin, std::int64_t{kTile}));
    s.keys = chunk_rows(p.k, p, s.segment, key_head(p, s.segment), begin, p.dim);
    s.values = chunk_rows(p.v, p, s.segment, key_head(p, s.segment), begin, p.value_dim);
  }
  __syncthreads();
}

/// The same with its keys' terms. Returns the keys that are there.
__device__ __forceinline__ Tokens begin_keys(CausalShared& s, const CausalCall& call,
                                             std::int64_t begin) {
  begin_chunk(s, call, begin);
  const KeyTerms terms(call.problem, s.segment.head, s.segment.span.batch,
                       s.segment.span.begin + begin);
  return load_key_terms(s, call.problem, terms, s.keys, s.tile(0));
}

/// The same with its keys' log2 features (or u) in the scratch, and s.live; those of other keys are
/// not to be used. Tiles 0 and 1.
__device__ __forceinline__ void project_keys(CausalShared& s, const CausalCall& call,
                                             std::int64_t begin) {
  const Problem& p = call.problem;
  const Tokens live = begin_keys(s, call, begin);
  if (threadIdx.x == 0) s.live = live;
  for (int slice = 0; slice < call.slices; ++slice) {
    float acc[4][4];
    project_slice(acc, p, s.key_projection, s.keys, Live{live}, slice * kTile, call.dim_blocks == 1,
                  s.tile(0), s.tile(1));
    add_terms(acc, s, p);
    store_tile(acc, s.scratch.keys + slice * kTileArea, kTile);
  }
}

/// The rows of a query head: its queries and, in `values`, those of another tensor. Ends in a
/// barrier.
__device__ __forceinline__ void begin_head(CausalShared& s, const CausalCall& call,
                                           std::int64_t head, const TokenView& view, Rows& values) {
  const Problem& p = call.problem;
  __syncthreads();
  if (threadIdx.x == 0) {
    s.query_projection = query_projection(p, head);
    s.queries = chunk_rows(p.q, p, s.segment, head, s.begin, p.dim);
    values = chunk_rows(view, p, s.segment, head, s.begin, p.value_dim);
  }
  __syncthreads();
}

/// The chunk's queries of one head, slice by slice: use(first feature, l). Tiles 0 and 1.
template <class Use>
__device__ __forceinline__ void project_queries(CausalShared& s, const CausalCall& call,
                                                const Use& use) {
  for (int slice = 0; slice < call.slices; ++slice) {
    float acc[4][4];
    project_slice(acc, call.problem, s.query_projection, s.queries, AllLive{}, slice * kTile,
                  call.dim_blocks == 1 && slice > 0, s.tile(0), s.tile(1));
    use(slice * kTile, acc);
  }
}

/// phi, in place of l (or u): 2^(l - scale_row) of the keys of the bits, 0 for others.
__device__ __forceinline__ void make_key_features(float (&l)[4][4], const Problem& p, int first,
                                                  const float (&scale)[4], unsigned bits) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const bool real = first + row0() + i < p.features;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float phi = p.exponential ? exp2_fast(l[i][j] - scale[i])
                                      : (real ? relu(l[i][j]) + p.eps_value : 0.0F);
      l[i][j] = (bits >> j & 1U) != 0 ? phi : 0.0F;
    }
  }
}
/// Query features, in place of l (or u): 2^(l + (scale_row - shift_column)).
__device__ __forceinline__ void make_query_features(float (&l)[4][4], const Problem& p, int first,
                                                    const float (&scale)[4], const float* shift) {
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const float column_shift = shift[col0() + j];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const bool real = first + row0() + i < p.features;
      l[i][j] = p.exponential ? exp2_fast(l[i][j] + (scale[i] - column_shift))
                              : (real ? relu(l[i][j]) + p.eps_value : 0.0F);
    }
  }
}

/// The state times 2^(c - reference): its factors for the thread's rows.
__device__ __forceinline__ void reference_factors(float (&factor)[4], const CausalShared& s,
                                                  const float (&reference)[4], int first) {
  load_rows_of(factor, s.state.scale, first);
#pragma unroll
  for (int i = 0; i < 4; ++i) factor[i] = exp2_integer(factor[i] - reference[i]);
}

/// s.part: the part of the chunk from token `begin` on whose key features may be formed relative to
/// scales that no later token decides, and those scales: of the state, or of the first key where it
/// is empty; raised to the part's first token where that exceeds them. Any row that sees a key
/// finds 2^-2 of its own scale in its denominator. Starts and ends with a barrier.
__device__ __forceinline__ void choose_key_scales(CausalShared& s, const CausalCall& call,
                                                  int begin) {
  const Problem& p = call.problem;
  __syncthreads();
  const Tokens after = s.live & ~tokens_below(begin);
  const int first_live = after == 0 ? kTile : __ffsll(static_cast<long long>(after)) - 1;
  const int lane = static_cast<int>(threadIdx.x) % 16, column = 4 * lane;
  int cut = s.count;
  bool reached = false;
  for (int r = static_cast<int>(threadIdx.x) / 16; r < call.features_padded(); r += 16) {
    const float c = s.state.scale[r];
    const bool empty = c <= kReachedScale, real = r < p.features;
    reached = reached || (!empty && real);
    float reference = p.exponential ? c : 0.0F;
    if (p.exponential && real) {
      const int at = empty ? first_live : begin;
      const float* l = s.scratch.keys + static_cast<std::int64_t>(r) * kTile;
      if (at < kTile && has(after, at)) {
        const float own = l[at];
        if (empty || own - c > kHeadroom) reference = round_up_log2(own);
      }
      const float4 x = *reinterpret_cast<const float4*>(l + column);
      const float relative[4] = {x.x - reference, x.y - reference, x.z - reference,
                                 x.w - reference};
#pragma unroll
      for (int j = 3; j >= 0; --j) {
        const bool later = column + j > at && has(after, column + j);
        if (later && relative[j] > kHeadroom) cut = min(cut, column + j);
      }
    }
    if (lane == 0) s.scratch.reference[r] = reference;
  }
  cut = __reduce_min_sync(0xffffffffU, cut);
  if (lane_id() == 0) s.flags[warp_id()] = cut;
  const bool any = __syncthreads_or(reached ? 1 : 0) != 0;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) cut = min(cut, s.flags[w]);
  if (threadIdx.x == 0) s.part = {after & tokens_below(cut), 0, begin, cut, any};
  __syncthreads();
}

/// The state after the part's keys: (S, z, c), with c the scales its keys need.
/// Tiles 0 and 1. Starts with a barrier; the state is visible to the block after the next one.
__device__ __forceinline__ void add_keys(CausalShared& s, const CausalCall& call) {
  const Problem& p = call.problem;
  const unsigned bits = column_bits(s.part.use);
  const int stride = call.values_padded();
  for (int slice = 0; slice < call.slices; ++slice) {
    const int first = slice * kTile;
    float phi[4][4], scale[4], z[4], factor[4], top[4], sum[4];
    load_tile(phi, s.scratch.keys + slice * kTileArea, kTile);
    load_rows_of(scale, s.state.scale, first);
    load_rows_of(z, s.state.normalizer, first);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float most = -infinity();
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if ((bits >> j & 1U) != 0) most = fmaxf(most, phi[i][j]);
      }
      top[i] = p.exponential ? row_lanes_max(most) : 0.0F;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const bool rises = s.part.use != 0 && first + row0() + i < p.features;
      const float needed = rises ? fmaxf(scale[i], round_up_log2(top[i])) : scale[i];
      factor[i] = exp2_integer(scale[i] - needed);
      scale[i] = needed;
    }
    make_key_features(phi, p, first, scale, bits);
    row_sum(phi, sum);
    __syncthreads();
    store_acc_transposed(phi, s.tile(0));
    if (col0() == 0) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        s.state.scale[first + row0() + i] = scale[i];
        s.state.normalizer[first + row0() + i] = fmaf(z[i], factor[i], sum[i]);
      }
    }
    for (int block = 0; block < call.value_blocks; ++block) {
      if (block > 0) __syncthreads();
      if (slice == 0 || call.value_blocks > 1) {
        load_rows(s.tile(1), s.values, block * kTile, Live{s.part.use});
      }
      __syncthreads();
      float acc[4][4];
      float* to = s.state.sum + static_cast<std::int64_t>(first) * stride + block * kTile;
      load_tile(acc, to, stride);
      multiply_rows(acc, factor);
      product(acc, s.tile(0), s.tile(1));
      clear_beyond(acc, p, first);
      store_tile(acc, to, stride);
    }
  }
}

}  // namespace performer::kernels::cuda::portable
