#pragma once

#include <cuda_bf16.h>

#include "performer/kernels/cuda/hopper/causal/carried_state.cuh"

// The carrying warpgroups of a scan: features are rows. W X^T comes out of wgmma with features in
// rows, becomes exp2, goes to shared memory for the reading warpgroup and straight back as the left
// operand of S += Phi^T [Y, side]. S stays in registers over all tokens.
//
// No scale may see a later token. A chunk's features are relative to the scales of the chunks
// before, which are raised after it; features may be up to 2^70 then (bfloat16 and float32 hold
// that, and what reading features of 2^-126 and less lose stays under 2^-40 of a row). A chunk that
// holds a key above that is cut before it: the key raises the scales, since every later token sees
// it, and the chunk goes on as another piece. Before any token, scales are empty and the first one
// raises them. Odd values cut too: 0 times infinity must not reach the rows before.
namespace performer::kernels::cuda::hopper {

inline constexpr float kHeadroom = 70;
inline constexpr int kCarrierBarrier = 3;  // and 4: of each carrying warpgroup

template <int kDim, int kOwned, bool kHalf>
class Carrier : CarriedState<kDim, kOwned> {
  using State = CarriedState<kDim, kOwned>;
  using State::a_;
  using State::block_;
  using State::first_feature;
  using State::group;
  using State::layout_;
  using State::normalizer;
  using State::raise;
  using State::scales;
  using State::step;
  using State::sum_;

 public:
  static constexpr int kFew = 32;  // tokens at a time where a chunk is looked at

  __device__ Carrier(const ScanArguments& a, const ScanLayout<kDim>& layout, const ScanBlock& block)
      : State(a, layout, block) {}

  __device__ void run() {
    this->load_biases();
    this->load();
    wait(ScanBarriers::weights(), 0);
#pragma unroll 1
    for (int t = 0; t < uniform(block_.tiles); ++t) {
      const Ring ring(t, layout_.stages);
      const auto stage = layout_.carried(ring.stage);
      wait(ScanBarriers::carried().full + ring.stage, ring.parity);
      const float least = __uint_as_float(vote<true>(__float_as_uint(this->least_scale())));
      const std::uint32_t odd = stage.odd()[0] | stage.odd()[1];
      const bool hot = !(*stage.upper() <= least + kHeadroom) || odd != 0;
      ScanPiece piece{0, kRows};
      do {
        if (hot) [[unlikely]]
          piece.end = find_end(stage, piece.begin);
        add(stage, ring.stage, piece);
        piece.begin = piece.end;
      } while (piece.begin < kRows);
      __syncwarp();
      if (threadIdx.x % 32 == 0) arrive(ScanBarriers::carried().empty + ring.stage);
    }
    this->store();
  }

 private:
  /// The least of all carrying threads' floats or ints.
  template <bool kFloat>
  __device__ std::uint32_t vote(std::uint32_t mine) {
    const auto less = [](std::uint32_t a, std::uint32_t b) {
      return kFloat ? __float_as_uint(fminf(__uint_as_float(a), __uint_as_float(b))) : min(a, b);
    };
    for (int step = 16; step > 0; step /= 2) mine = less(mine, __shfl_xor_sync(~0U, mine, step));
    std::uint32_t* votes = ScanBarriers::votes() + (flips_ & 8);
    flips_ ^= 8;
    if (threadIdx.x % 32 == 0) votes[threadIdx.x / 32 - 4] = mine;
    sync_warpgroups(1);
#pragma unroll
    for (int i = 0; i < 8; ++i) mine = less(mine, votes[i]);
    return mine;
  }

  /// An address for descriptors, made here, not kept in registers from an earlier use.
  __device__ static std::uint32_t here(std::uint32_t address) {
    return static_cast<std::uint32_t>(uniform(static_cast<int>(address)));
  }

  /// Begins u = W_i X^T of the part-th 2 kCount tokens, in log2 units.
  template <int kCount>
  __device__ void project(float (&u)[kCount], const ScanStage<kDim>& stage, int i, int part) const {
    const std::uint32_t high = here(shared_address(scan_memory()) + layout_.carried_w +
                                    (i * kGroups + group()) * Tile<kDim>::kBytes);
    const std::uint32_t x =
        here(shared_address(stage.x()) + part * 2 * kCount * Tile<kDim>::kRowBytes);
    mma_fence();
    multiply_tiles<kHalf, kDim>(u, high + layout_.weights, x, false);
    multiply_tiles<kHalf, kDim>(u, high, x, true);
    mma_commit();
  }

  /// Exponents: terms and shifts may both be large, and meet first.
  template <int kCount>
  __device__ static void add_terms(float (&u)[kCount], const ScanStage<kDim>& stage, int part,
                                   const float (&shift)[2]) {
    const float* terms = stage.terms() + part * 2 * kCount + thread_again() % 4 * 2;
#pragma unroll
    for (int j = 0; j < kCount / 4; ++j) {
      const float2 t = *reinterpret_cast<const float2*>(terms + 8 * j);
      u[4 * j] += t.x - shift[0], u[4 * j + 1] += t.y - shift[0];
      u[4 * j + 2] += t.x - shift[1], u[4 * j + 3] += t.y - shift[1];
    }
  }

  /// The token at `begin` raises the scales of slice i to its own exponents.
  __device__ void raise_by(const ScanStage<kDim>& stage, int i, int begin) {
    const int token = ScanPiece::place(begin, a_.reverse), part = token / kFew;
    const Place place(thread_again());
    const float* bias = ScanBiases::carried() + first_feature(place) + step(i, 0);
    float* own = scales();
    const float c[2] = {own[kRows * i], own[kRows * i + 8]};
    // An empty scale is too far from any exponent to measure from.
    const float from[2] = {c[0] < kReachedScale ? 0 : c[0], c[1] < kReachedScale ? 0 : c[1]};
    const float shift[2] = {from[0] - bias[0], from[1] - bias[8]};
    float u[kFew / 2];
    project(u, stage, i, part);
    mma_wait<0>();
    settle(u);
    add_terms(u, stage, part, shift);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float found = -INFINITY;
#pragma unroll
      for (int k = 0; k < kFew / 4; ++k) {
        if (part * kFew + 8 * (k / 2) + place.column + k % 2 == token) {
          found = u[4 * (k / 2) + 2 * h + k % 2];
        }
      }
      const float needed = from[h] + ceilf(quad_max(found));
      if (needed > c[h]) raise(own, i, h, c[h], needed);
    }
    __syncwarp();
  }

  /// Where the piece from `begin` on ends. Its first token raises the scales where it must.
  __device__ int find_end(const ScanStage<kDim>& stage, int begin) {
    const Place place(thread_again());
    const int own = first_feature(place);
    std::uint64_t odd = stage.odd()[0] | static_cast<std::uint64_t>(stage.odd()[1]) << 32;
    if (a_.reverse) odd = __brevll(odd);
    odd = begin == kRows - 1 ? 0 : odd >> (begin + 1) << (begin + 1);
    const auto next_odd = static_cast<std::uint32_t>(odd == 0 ? kRows : __ffsll(odd) - 1);
    std::uint32_t end = kRows;
#pragma unroll 1
    for (int raises = 0; raises < 2; ++raises) {
      std::uint32_t first = next_odd;
#pragma unroll
      for (int i = 0; i < kOwned; ++i) {
        if (raises == 1) raise_by(stage, i, begin);
        const float* bias = ScanBiases::carried() + own + step(i, 0);
        const float* c = scales() + kRows * i;
        const float shift[2] = {c[0] - bias[0], c[8] - bias[8]};
#pragma unroll
        for (int part = 0; part < kRows / kFew; ++part) {
          float u[kFew / 2];
          project(u, stage, i, part);
          mma_wait<0>();
          settle(u);
          add_terms(u, stage, part, shift);
#pragma unroll
          for (int k = 0; k < kFew / 2; ++k) {
            const int token = part * kFew + 8 * (k / 4) + place.column + k % 2;
            const auto at = static_cast<std::uint32_t>(ScanPiece::place(token, a_.reverse));
            if (u[k] > kHeadroom && at >= begin + raises) first = min(first, at);
          }
        }
      }
      end = vote<false>(first);
      if (end > begin) break;
    }
    return static_cast<int>(end);
  }

  /// S, z and scales of slice i as the reading warpgroup takes them, once it has left the unit.
  __device__ void publish(int i) const {
    const int mine = group();
    const auto unit = layout_.unit(mine);
    wait(ScanBarriers::unit_empty(mine), (flips_ & 1) ^ 1);
    const Place place(thread_again());
    const int own = first_feature(place);
    const int lane = thread_again() % 32;
    const int first = place.row / 16 * 16;
    const std::uint32_t to = shared_address(unit.sums());
    const int block = lane / 8;
    const std::uint32_t low = shared_address(unit.low_sums());
#pragma unroll
    for (int j = 0; j < kDim / 8; j += 2) {
      const float* s = sum_[i] + 4 * j;
      const int at = SumTile<kDim>::offset(8 * (j + block / 2) + lane % 8, first + block % 2 * 8);
      std::uint32_t high[4], rest[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        high[k] = pack_bf16(s[2 * k], s[2 * k + 1]);
        const float2 rounded = unpack<false>(high[k]);
        rest[k] = pack_bf16(s[2 * k] - rounded.x, s[2 * k + 1] - rounded.y);
      }
      store_transposed(to + at, high[0], high[1], high[2], high[3]);
      store_transposed(low + at, rest[0], rest[1], rest[2], rest[3]);
    }
    float z[2];
    std::uint32_t high[2], rest[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      z[h] = normalizer(i, h);
      high[h] = place.column == 0 ? pack_bf16(z[h], 0) : 0;
      rest[h] = place.column == 0 ? pack_bf16(z[h] - unpack<false>(high[h]).x, 0) : 0;
    }
    const int at = SumTile<kDim>::offset(kDim + lane % 8, first + block % 2 * 8);
    store_transposed(to + at, high[0], high[1]);
    store_transposed(low + at, rest[0], rest[1]);
    if (place.column == 0) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float bias = ScanBiases::reading()[own + step(i, h)];
        const float c = unit.own_scales()[kRows * i + place.row + 8 * h];
        unit.scales()[place.row + 8 * h] = bias == -INFINITY ? bias : bias + c;
        unit.normalizers()[place.row + 8 * h] = z[h];
      }
    }
  }

  /// The features of the piece are published and summed; afterwards scales are above them.
  __device__ void add(const ScanStage<kDim>& stage, int stage_index, const ScanPiece& piece) {
#pragma unroll
    for (int i = 0; i < kOwned; ++i) {
      const float* bias = ScanBiases::carried() + first_feature(Place(thread_again())) + step(i, 0);
      const float* c = scales() + kRows * i;
      const float shift[2] = {c[0] - bias[0], c[8] - bias[8]};
      float u[32];
      project(u, stage, i, 0);
      mma_wait<0>();
      settle(u);
      add_terms(u, stage, 0, shift);
      std::uint32_t phi[16];
#pragma unroll
      for (int k = 0; k < 16; ++k) phi[k] = pack_bf16(exp2_fast(u[2 * k]), exp2_fast(u[2 * k + 1]));
      if (piece.is_whole()) [[likely]] {
        if (!a_.alone) {
          publish(i);
          hand_over(phi, piece);
        }
        add_values(phi, i, shared_address(stage.y()), stage_index);
      } else {
        // Values of other pieces may be infinite: 0 times them must not reach S. The unit lends a
        // tile before it holds the features.
        keep_piece(phi, piece);
        if (!a_.alone) publish(i);
        const int barrier = kCarrierBarrier + group();
        char* lent = layout_.unit(group()).features();
        copy_piece<kDim>(stage.y(), lent, piece, a_.reverse, barrier);
        add_values(phi, i, shared_address(lent), stage_index);
        mma_wait<0>();
        sync_warpgroup(barrier);
        if (!a_.alone) hand_over(phi, piece);
      }
      raise_above(phi, i);
    }
  }

  /// Features of tokens outside the piece become 0, whatever they were.
  __device__ void keep_piece(std::uint32_t (&phi)[16], const ScanPiece& piece) const {
    const Place place(thread_again());
#pragma unroll
    for (int k = 0; k < 16; ++k) {
      const int token = 8 * (k / 2) + place.column;
      if (!piece.holds(token, a_.reverse)) phi[k] &= 0xFFFF0000U;
      if (!piece.holds(token + 1, a_.reverse)) phi[k] &= 0xFFFFU;
    }
  }

  /// The features themselves: slice and piece are then the reader's. publish() came before.
  __device__ void hand_over(const std::uint32_t (&phi)[16], const ScanPiece& piece) {
    const int mine = group();
    const int thread = thread_again(), lane = thread % 32, block = lane / 8;
    const std::uint32_t to = shared_address(layout_.unit(mine).features());
#pragma unroll
    for (int j = 0; j < 8; j += 2) {
      store_transposed(
          to + Tile<64>::offset(8 * (j + block / 2) + lane % 8, thread % 128 / 32 * 2 + block % 2),
          phi[2 * j], phi[2 * j + 1], phi[2 * j + 2], phi[2 * j + 3]);
    }
    if (thread % 128 == 0) ScanBarriers::piece(mine) = piece;
    fence_async();
    __syncwarp();
    if (lane == 0) arrive(ScanBarriers::unit_full(mine));
    flips_ ^= 1;
  }

  /// Begins S += Phi^T [Y, side].
  __device__ void add_values(const std::uint32_t (&phi)[16], int i, std::uint32_t values,
                             int stage_index) {
    const std::uint32_t y = here(values);
    mma_fence();
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      mma_rows(sum_[i], phi + 4 * k, layout_.values(y, stage_index, k), true);
    }
    mma_commit();
  }

  __device__ void raise_above(const std::uint32_t (&phi)[16], int i) {
    float top[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const auto pair = [&](int j) {
        return *reinterpret_cast<const __nv_bfloat162*>(&phi[2 * j + h]);
      };
      __nv_bfloat162 most = pair(0);
#pragma unroll
      for (int j = 1; j < 8; ++j) most = __hmax2(most, pair(j));
      top[h] = fmaxf(__low2float(most), __high2float(most));
    }
    const bool rises = __any_sync(~0U, top[0] > 1 || top[1] > 1);
    mma_wait<0>();
    settle(sum_[i]);
    if (!rises) [[likely]]
      return;
    float* own = scales();
    const float c[2] = {own[kRows * i], own[kRows * i + 8]};
    __syncwarp();
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float most = quad_max(top[h]);
      // The exponent, rounded up.
      const int more = static_cast<int>((__float_as_uint(most) + 0x7FFFFFU) >> 23) - 127;
      if (most > 1) raise(own, i, h, c[h], c[h] + static_cast<float>(more));
    }
    __syncwarp();
  }

  std::uint32_t flips_ = 0;  // 1: the parity of the unit, 8: which votes
};

}  // namespace performer::kernels::cuda::hopper
