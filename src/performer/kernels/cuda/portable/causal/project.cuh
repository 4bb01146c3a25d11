#pragma once

#include "performer/kernels/cuda/portable/causal/tiles.cuh"

// The way from a segment to the log2 features of its chunks: where tokens lie, terms of keys, W x.
namespace performer::kernels::cuda::portable {

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

/// One slice of features of a chunk's tokens: `resident` where a single block of dims of x lies in
/// tile 0 already.
struct SliceInput {
  const Projection& w;
  const Rows& x;
  int first;  // feature
  bool resident;
};

/// acc[feature][token] = (W x + bias); beyond m -inf (exponential maps) or 0. A single block of
/// dims of x stays in tile 0, tile 1 has W. Starts with a barrier.
template <class LiveRows>
__device__ __forceinline__ void project_slice(float (&acc)[4][4], CausalShared& s, const Problem& p,
                                              const SliceInput& in, const LiveRows& live) {
  const auto& [w, x, first, resident] = in;
  float *x_tile = s.tile(0), *w_tile = s.tile(1);
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
    project_slice(acc, s, p, {s.key_projection, s.keys, slice * kTile, call.dim_blocks == 1},
                  Live{live});
    add_terms(acc, s, p);
    store_tile(acc, s.scratch.keys + slice * kTileArea, kTile);
  }
}

/// The rows of a query head: its queries, and those of another tensor in `values`. Ends in a
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
    const bool resident = call.dim_blocks == 1 && slice > 0;
    project_slice(acc, s, call.problem, {s.query_projection, s.queries, slice * kTile, resident},
                  AllLive{});
    use(slice * kTile, acc);
  }
}

}  // namespace performer::kernels::cuda::portable
