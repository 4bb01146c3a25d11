#pragma once

#include "performer/kernels/cpu/chunk_keys.h"
#include "performer/kernels/cpu/forward.h"

// Causal FAVOR+ in chunks: queries against the state before the chunk, and against the chunk's own
// keys up to themselves. Nothing a row is computed from depends on a later token: features are
// relative to scales known before the chunk, products with later keys are selected away, and
// whether a row takes the exact path is decided by tokens up to it.
namespace performer::kernels::PERFORMER_ISA {

/// A row whose denominator is below this share of its scale is formed anew, feature by feature.
inline constexpr float kRowGuard = 0x1p-60F;

class CausalForward {
 public:
  CausalForward(const FavorProblem& p, const Sizes& s, Scratch scratch)
      : problem_(p),
        sizes_(s),
        key_projection_(p, s, scratch),
        query_projection_(p, s, scratch),
        keys_(p, s, key_projection_, scratch),
        state_(s, scratch),
        q_(scratch.floats(kChunk * s.dp)),
        weights_(scratch.floats(kChunk * s.ldf)),
        scores_(scratch.floats(kChunk * kChunk)),
        out_(scratch.floats(kChunk * s.dvp)),
        finite_v_(scratch.floats(kChunk * s.dvp)),
        spread_(scratch.floats(s.dvp)),
        zeros_(scratch.floats(kChunk)),
        log2_(scratch.floats(s.mp * kChunk)) {
    zero(zeros_, kChunk);
  }
  CausalForward(const CausalForward&) = delete;  // its parts refer to each other
  CausalForward& operator=(const CausalForward&) = delete;

  static std::size_t bytes(const Sizes& s) {
    const auto floats = ChunkKeys::floats(s) + 2 * Projection::floats(s) + State::floats(s) +
                        kChunk * (s.dp + s.ldf + kChunk + 2 * s.dvp + 1 + s.mp) + s.dvp +
                        10 * kLine;
    return static_cast<std::size_t>(floats) * sizeof(float);
  }

  State& state() { return state_; }
  const Projection& key_projection() const { return key_projection_; }

  /// The head whose keys follow.
  void pack_keys(std::int64_t state_head) { key_projection_.pack_keys(state_head); }

  /// Chunks of [begin, end), from the state and to the state after them.
  void run(std::int64_t state_head, Span span, std::int64_t begin, std::int64_t end,
           const ForwardOutputs& outputs) {
    for (; begin < end; begin += kChunk) {
      keys_.take(state_head, span, begin, least(kChunk, end - begin));
      keys_.make_features(state_);
      attend_group(keys_, state_, state_.reached(sizes_), state_head, span, begin, outputs);
      keys_.add_to(state_, log2_);
    }
  }

  /// The chunk's rows of all query heads. reached: `state` has keys.
  void attend_group(const ChunkKeys& keys, const State& state, bool reached,
                    std::int64_t state_head, Span span, std::int64_t begin,
                    const ForwardOutputs& outputs) {
    prepare_values(keys);
    const auto group = problem_.heads / problem_.state_heads;
    for (std::int64_t g = 0; g < group; ++g) {
      attend(keys, state, reached, state_head * group + g, span, begin, outputs);
    }
  }

  /// Room of [mp, kChunk] that is free between chunks.
  float* room() { return log2_; }

 private:
  // Values that are not finite reach the rows from their own on, in their own column: the products
  // get zeros in their place.
  void prepare_values(const ChunkKeys& keys) {
    const auto n = keys.tokens() * sizes_.dvp;
    values_ = keys.v();
    Vec test{};  // NaN as soon as one value is not finite
    for (std::int64_t i = 0; i < n; i += kLanes) test += load(keys.v() + i) * Vec{};
    const float sum = sum_lanes(test);
    finite_ = sum == sum;
    if (finite_) return;
    for (std::int64_t i = 0; i < n; ++i) {
      const float x = keys.v()[i];
      finite_v_[i] = x * 0 == 0 ? x : 0;
    }
    values_ = finite_v_;
  }

  void attend(const ChunkKeys& keys, const State& state, bool reached, std::int64_t head, Span span,
              std::int64_t begin, const ForwardOutputs& outputs) {
    const auto& s = sizes_;
    const auto tokens = keys.tokens();
    const auto first = span.begin + begin;
    query_projection_.pack_queries(head);
    load_tokens(problem_.q, problem_.dtype, span.batch, head, first, tokens, s.d, s.dp, q_);
    query_projection_.token_major(q_, tokens, zeros_, weights_);
    RowScale rows[kChunk];
    for (std::int64_t i = 0; i < tokens; ++i) {
      float* row = weights_ + i * s.ldf;
      rows[i] = problem_.map == Map::kExponential
                    ? query_exponentials(s, row, keys.reference(), state.normalizer)
                    : query_values(problem_.map, s, query_projection_, row, state.normalizer);
    }
    gemm<Plus::kNothing>(tokens, s.dvp, s.mp, {weights_, s.ldf, 1}, Right::rows(state.sum, s.dvp),
                         out_, s.dvp);
    for (std::int64_t i = 0; i < tokens; i += kBlockRows) {
      attend_chunk(keys, i, least<std::int64_t>(kBlockRows, tokens - i), rows);
    }
    if (problem_.map == Map::kExponential) replace_exact_rows(keys, state, rows, reached);
    if (!finite_) spread_nonfinite(keys);
    const auto row_index = (span.batch * problem_.heads + head) * problem_.query_length + first;
    for (std::int64_t i = 0; i < tokens; ++i) {
      divide_row(problem_.map, s, out_ + i * s.dvp, rows[i].sum, reached || keys.first_live() <= i);
      outputs.row_sum[row_index + i] = rows[i].sum;
      outputs.row_log2_scale[row_index + i] = static_cast<std::int32_t>(rows[i].log2);
    }
    store_tokens(outputs.out, problem_.dtype, span.batch, head, first, tokens, s.dv, s.dvp, out_);
  }

  // Rows [i, i + count) against the chunk's keys up to themselves.
  void attend_chunk(const ChunkKeys& keys, std::int64_t i, std::int64_t count, RowScale* rows) {
    const auto& s = sizes_;
    const auto columns = round_up(i + count, kLanes);
    float* scores = scores_ + i * kChunk;
    gemm<Plus::kNothing>(count, columns, s.mp, {weights_ + i * s.ldf, s.ldf, 1},
                         Right::rows(keys.phi(), kChunk), scores, kChunk);
    for (std::int64_t r = 0; r < count; ++r) {
      float* row = scores + r * kChunk;
      Vec sum{};
      for (std::int64_t j = 0; j < columns; j += kLanes) {
        if (j + kLanes > i + r + 1) {
          for (std::int64_t lane = most(j, i + r + 1); lane < j + kLanes; ++lane) row[lane] = 0;
        }
        sum += load(row + j);
      }
      rows[i + r].sum += sum_lanes(sum);
    }
    gemm<Plus::kSelf>(count, s.dvp, i + count, {scores, kChunk, 1}, Right::rows(values_, s.dvp),
                      out_ + i * s.dvp, s.dvp);
  }

  void spread_nonfinite(const ChunkKeys& keys) {
    const auto dvp = sizes_.dvp;
    zero(spread_, dvp);
    for (std::int64_t i = 0; i < keys.tokens(); ++i) {
      for (std::int64_t e = 0; e < dvp; ++e) {
        const float x = keys.v()[i * dvp + e];
        if (x * 0 != 0) spread_[e] += x;
        if (spread_[e] != 0) out_[i * dvp + e] += spread_[e];
      }
    }
  }

  void replace_exact_rows(const ChunkKeys& keys, const State& state, RowScale* rows, bool reached) {
    bool projected = false;
    for (std::int64_t i = 0; i < keys.tokens(); ++i) {
      const bool has_keys = reached || keys.first_live() <= i;
      const bool weak = i >= keys.bad() || (has_keys && rows[i].sum < kRowGuard);
      if (!weak) continue;
      if (!projected) keys.project(log2_);
      projected = true;
      rows[i] = exact_row(state, i);
    }
  }

  // Row i with one scale per feature over the state and the keys j <= i: exponents of query and key
  // are added before the exponential, so that this is exact at any norm.
  RowScale exact_row(const State& state, std::int64_t i) {
    const auto& s = sizes_;
    float* l = weights_ + i * s.ldf;
    query_projection_.token_major(q_ + i * s.dp, 1, zeros_, l);
    float top = -__builtin_inff();
    for (std::int64_t r = 0; r < s.m; ++r) {
      float c = state.scale[r];
      for (std::int64_t j = 0; j <= i; ++j) {
        const float k = log2_[r * kChunk + j];
        if (k != -__builtin_inff()) c = most(c, round_up_log2(k));
      }
      if (l[r] + c > top) top = l[r] + c;
    }
    const float log2 = round_up_log2(top);
    float* out = out_ + i * s.dvp;
    zero(out, s.dvp);
    float total = 0;
    for (std::int64_t j = 0; j <= i; ++j) {
      float weight = 0;
      for (std::int64_t r = 0; r < s.m; ++r) {
        // The two large terms cancel first: the query keeps its fraction.
        weight += scalar_exp2(l[r] + (log2_[r * kChunk + j] - log2));
      }
      total += weight;
      for (std::int64_t e = 0; e < s.dv; ++e) out[e] += weight * values_[j * s.dvp + e];
    }
    for (std::int64_t r = 0; r < s.m; ++r) {
      if (state.scale[r] <= kReachedScale) continue;
      const float weight = scalar_exp2(l[r] + (state.scale[r] - log2));
      total += weight * state.normalizer[r];
      for (std::int64_t e = 0; e < s.dv; ++e) out[e] += weight * state.sum[r * s.dvp + e];
    }
    return {total, log2};
  }

  static float scalar_exp2(float x) {
    float lanes[kLanes];
    store(lanes, exp2(splat(x)));
    return lanes[0];
  }

  const FavorProblem& problem_;
  const Sizes& sizes_;
  Projection key_projection_, query_projection_;
  ChunkKeys keys_;
  State state_;
  float *q_, *weights_, *scores_, *out_, *finite_v_, *spread_, *zeros_, *log2_;
  const float* values_ = nullptr;  // [tokens, dvp] finite
  bool finite_ = true;
};

}  // namespace performer::kernels::PERFORMER_ISA
