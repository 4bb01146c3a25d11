#pragma once

#include <cstdint>

#include "performer/kernels/cuda/common/problem.h"
#include "performer/kernels/cuda/hopper/arguments.h"
#include "performer/kernels/cuda/hopper/elements.cuh"
#include "performer/kernels/cuda/hopper/ring.cuh"
#include "performer/kernels/cuda/hopper/stage.cuh"

// Four warps bring tiles of tokens to shared memory, each its own tile: any strides, masked rows as
// zeros, x in the tokens' type, y as bfloat16, and per token what its exponents and sums need.
// Boxes are copied by TMA and y is converted in place.
namespace performer::kernels::cuda::hopper {

/// Where an item's tokens lie: in a packed batch, from `offset` on.
struct Span {
  std::int64_t batch, head, offset, length;
};

/// A producer's view of one item.
template <int kDim, Kind kKind>
class Producer {
 public:
  __device__ Producer(const Tokens& t, std::int64_t item)
      : Producer(t, Span{item / t.heads, item % t.heads, 0, t.length}) {}

  __device__ Producer(const Tokens& t, const Span& span)
      : t_(t),
        chunk_(static_cast<int>(threadIdx.x % kChunks)),
        first_row_(static_cast<int>(threadIdx.x % 32 / kChunks)),
        offset_(static_cast<int>(span.offset)),
        length_(static_cast<int>(span.length)) {
    const std::int64_t n = span.batch, head = span.head;
    batch_ = static_cast<int>(n);
    x_head_ = static_cast<int>(head) / (t.heads / t.x_heads);
    y_head_ = static_cast<int>(head) / (t.heads / t.y_heads);
    x_ = t.x.data + n * t.x.batch + x_head_ * t.x.head + span.offset * t.x.token;
    if constexpr (kPaired) {
      y_ = t.y.data + n * t.y.batch + y_head_ * t.y.head + span.offset * t.y.token;
    }
    if constexpr (kKind == Kind::kKeys) {
      if (t.mask != nullptr) mask_ = t.mask + n * t.mask_batch + span.offset * t.mask_token;
      if (t.bias != nullptr) {
        bias_ = t.bias + n * t.bias_batch + head / (t.heads / t.bias_heads) * t.bias_head +
                span.offset * t.bias_token;
      }
    } else {
      row_ = (n * t.heads + head) * t.length + span.offset;
    }
    if constexpr (kKind == Kind::kRows) {
      o_ = t.o.data + n * t.o.batch + head * t.o.head + span.offset * t.o.token;
    }
  }

  /// Begins to copy tokens [first, first + 64) into a stage, once it is free. The copy completes
  /// queries; others need finish().
  template <class StageType>
  __device__ void begin(std::int64_t first, StageType stage, const StageBarriers& barriers,
                        std::uint32_t parity) const {
    wait(barriers.empty, parity);
    Barrier* copied = kPaired ? barriers.raw : barriers.full;
    if (!t_.mapped) {
      gather(t_.x, x_, first, stage.x());
      if constexpr (kPaired) gather(t_.y, y_, first, stage.y());
      if constexpr (!kPaired) {
        fence_async();
        __syncwarp();
        if (threadIdx.x % 32 == 0) arrive(barriers.full);
      }
    } else if (threadIdx.x % 32 == 0) {
      arrive_expecting(copied, (kPaired ? 2 : 1) * Tile<kDim>::kBytes);
      copy(t_.x_map, x_head_, first, stage.x(), copied);
      if constexpr (kPaired) copy(t_.y_map, y_head_, first, stage.y(), copied);
    }
    if constexpr (kKind == Kind::kRows) {
#pragma unroll 4
      for (int pass = 0; pass < kPasses; ++pass) {
        const std::int64_t token = first + row(pass);
        if (chunk_ % 8 == 0 && token < length_) {
          prefetch_l2(o_ + token * t_.o.token + 8 * chunk_ * t_.o.element);
        }
      }
    }
    if constexpr (kKind == Kind::kRows || kKind == Kind::kSums) {
      const std::int64_t token = first + threadIdx.x % 32 * 8;
      if (threadIdx.x % 32 < 8 && token < length_) {
        prefetch_l2(t_.row_sum + row_ + token);
        prefetch_l2(t_.row_log2 + row_ + token);
        if constexpr (kKind == Kind::kSums) prefetch_l2(t_.along + row_ + token);
      }
    }
  }

  /// Hands the tokens that `begin` copied over. hook(stage) comes first and tells whether it wrote
  /// what tensor cores read.
  template <class StageType, class Hook>
  __device__ void finish(std::int64_t first, StageType stage, const StageBarriers& barriers,
                         std::uint32_t parity, Hook hook) const {
    if constexpr (kPaired) {
      const auto left = static_cast<int>(min(length_ - first, static_cast<std::int64_t>(kRows)));
      const bool plain = kKind == Kind::kKeys && !has_key_data() && left == kRows;
      bool dead = false;  // a token takes no part
      if (!plain) {
#pragma unroll
        for (int row = static_cast<int>(threadIdx.x % 32); row < kRows; row += 32) {
          const RowData data = load_row(first + row);
          dead |= !data.live;
          stage.terms()[row] = data.live ? data.term : -INFINITY;
          if constexpr (kKind == Kind::kSums) stage.weights()[row] = data.live ? data.weight : 0;
        }
        dead = __any_sync(~0U, dead);
        __syncwarp();  // terms of other lanes
      }
      if (t_.mapped) wait(barriers.raw, parity);
      if (t_.half) {
        visit_chunks<true>(first, stage, plain, dead);
      } else if (kKind != Kind::kSums || dead) {
        visit_chunks<false>(first, stage, plain, dead);
      }
      const bool wrote = hook(stage);
      hand_over(barriers.full, wrote || t_.half || dead || !t_.mapped);
    }
  }

 private:
  static constexpr bool kPaired = kKind != Kind::kQueries;
  static constexpr int kChunks = Tile<kDim>::kChunks;
  static constexpr int kPasses = kRows * kChunks / 32;

  /// What goes with a token: whether it takes part, its term of the exponents; sums: -along.
  struct RowData {
    bool live;
    float term, weight;
  };

  /// written: by ordinary stores, which the tensor cores do not see by themselves.
  __device__ static void hand_over(Barrier* full, bool written) {
    if (written) fence_async();
    arrive(full);
  }

  __device__ int row(int pass) const { return pass * (32 / kChunks) + first_row_; }

  __device__ void copy(const CUtensorMap& map, int head, std::int64_t first, char* tile,
                       Barrier* raw) const {
    constexpr int kBlock = Tile<kDim>::kRowBytes / 2;
#pragma unroll
    for (int e = 0; e < kDim; e += kBlock) {
      tensor_load(tile + e / kBlock * Tile<kDim>::kBlockBytes, &map, e,
                  static_cast<int>(first) + offset_, head, batch_, raw);
    }
  }

  __device__ void gather(const Source& s, const std::uint16_t* rows, std::int64_t first,
                         char* tile) const {
#pragma unroll 1
    for (int pass = 0; pass < kPasses; ++pass) {
      const std::int64_t token = first + row(pass);
      uint4 value{0, 0, 0, 0};
      if (token < length_) value = gather_chunk(s, rows + token * s.token, chunk_);
      *reinterpret_cast<uint4*>(tile + Tile<kDim>::offset(row(pass), chunk_)) = value;
    }
  }

  __device__ bool has_key_data() const { return mask_ != nullptr || bias_ != nullptr; }

  __device__ RowData load_row(std::int64_t token) const {
    RowData data{token < length_, 0, 0};
    if constexpr (kKind == Kind::kKeys) {
      if (data.live && mask_ != nullptr) data.live = mask_[token * t_.mask_token];
      if (data.live && bias_ != nullptr) {
        data.term = bias_[token * t_.bias_token] * static_cast<float>(kLog2E);
        data.live = data.term != -INFINITY;
      }
    } else if (data.live) {
      // 1 / den = 2^term; a row without keys takes no part.
      const float sum = t_.row_sum[row_ + token];
      data.term = -static_cast<float>(t_.row_log2[row_ + token]) - __log2f(sum);
      if constexpr (kKind == Kind::kSums) data.weight = -t_.along[row_ + token];
      data.live = sum != 0;
    }
    return data;
  }

  /// Sums over the chunks of a row, for kCount rows at once.
  template <int kCount>
  __device__ static void add_chunks(float (&x)[kCount]) {
#pragma unroll
    for (int step = 1; step < kChunks; step *= 2) {
#pragma unroll
      for (float& sum : x) sum += __shfl_xor_sync(~0U, sum, step);
    }
  }

  // The tokens chunk by chunk: norms of keys, along of rows, y from float16, zeros where a token
  // takes no part. plain: no terms were written yet.
  template <bool kHalf, class StageType>
  __device__ void visit_chunks(std::int64_t first, StageType stage, bool plain, bool dead) const {
#pragma unroll 1
    for (int pass = 0; pass < kPasses; pass += 4) {
      uint4 o[4];
      if constexpr (kKind == Kind::kRows) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const std::int64_t token = first + row(pass + i);
          const std::uint16_t* out = o_ + token * t_.o.token;
          o[i] = uint4{0, 0, 0, 0};
          if (token < length_) {
            o[i] = t_.vector ? __ldg(reinterpret_cast<const uint4*>(out) + chunk_)
                             : gather_chunk(t_.o, out, chunk_);
          }
        }
      }
      float sum[4] = {};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int at = Tile<kDim>::offset(row(pass + i), chunk_);
        auto* x = reinterpret_cast<uint4*>(stage.x() + at);
        auto* y = reinterpret_cast<uint4*>(stage.y() + at);
        if constexpr (kKind == Kind::kKeys) {
          const uint4 k = *x;
          sum[i] = dot<kHalf, kHalf>(k, k);
        }
        if constexpr (kHalf) *y = half_to_bf16(*y);
        // Of the same rounded gradient that is multiplied with S.
        if constexpr (kKind == Kind::kRows) sum[i] = dot<false, kHalf>(*y, o[i]);
      }
      if (dead) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int at = Tile<kDim>::offset(row(pass + i), chunk_);
          if (stage.terms()[row(pass + i)] != -INFINITY) continue;
          *reinterpret_cast<uint4*>(stage.x() + at) = uint4{0, 0, 0, 0};
          *reinterpret_cast<uint4*>(stage.y() + at) = uint4{0, 0, 0, 0};
          sum[i] = 0;
        }
      }
      if constexpr (kKind == Kind::kSums) continue;
      add_chunks(sum);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (chunk_ != 0) continue;
        const int at = row(pass + i);
        if constexpr (kKind == Kind::kKeys) {
          stage.terms()[at] = t_.norm * sum[i] + (plain ? 0 : stage.terms()[at]);
        } else {
          stage.weights()[at] = -sum[i];
        }
      }
    }
  }

  const Tokens& t_;
  const int chunk_, first_row_, offset_, length_;
  const std::uint16_t *x_ = nullptr, *y_ = nullptr, *o_ = nullptr;
  const bool* mask_ = nullptr;
  const float* bias_ = nullptr;
  std::int64_t row_ = 0;
  int batch_, x_head_, y_head_;
};

/// A producer warp's share of `count` tiles from token 64 first_tile on; `before`: tiles the block
/// had before. hook() is called once: after the warp's first tile where the ring is long, so that
/// the tile does not wait for what hook() waits for, else first.
template <int kDim, Kind kKind, class StageOf, class Hook>
__device__ void produce_tiles(const Producer<kDim, kKind>& producer, std::int64_t first_tile,
                              int count, int before, const RingShape& shape,
                              const RingBarriers& ring, StageOf stage, Hook hook) {
  const int warp = uniform(static_cast<int>(threadIdx.x / 32 % 4));
  const int mine = (warp - before) & (shape.warps - 1), ahead = shape.ahead();
  bool hooked = !shape.is_long() || warp >= shape.warps;
  if (hooked) hook();
  if (warp >= shape.warps) return;
#pragma unroll 1
  for (int tile = mine - ahead; tile < count; tile += shape.warps) {
    const int next = tile + ahead;
    if (next >= mine && next < count) {
      const Ring at(before + next, shape.stages);
      producer.begin((first_tile + next) * kRows, stage(at.stage), ring.of(at.stage),
                     at.parity ^ 1);
    }
    if (tile < mine) continue;
    const Ring at(before + tile, shape.stages);
    producer.finish((first_tile + tile) * kRows, stage(at.stage), ring.of(at.stage), at.parity,
                    [](const auto&) { return false; });
    if (!hooked) hook();
    hooked = true;
  }
  if (!hooked) hook();
}

}  // namespace performer::kernels::cuda::hopper
