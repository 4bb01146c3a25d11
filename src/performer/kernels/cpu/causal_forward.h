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
        keys_(p, s, scratch),
        query_projection_(p, s, scratch),
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

  static std::size_t bytes(const Sizes& s) {
    const auto floats = ChunkKeys::floats(s) + Projection::floats(s) + State::floats(s) +
                        kChunk * (s.dp + s.ldf + kChunk + 2 * s.dvp + 1 + s.mp) + s.dvp +
                        10 * kLanes;
    return static_cast<std::size_t>(floats) * sizeof(float);
  }

  /// One sequence and state head, from its initial to its final state.
  void run(std::int64_t n, std::int64_t state_head, const ForwardOutputs& outputs) {
    const auto& s = sizes_;
    const Span span = key_span(problem_, n);
    const auto group = problem_.heads / problem_.state_heads;
    const auto index = state_index(problem_, n, state_head);
    state_.load(s, problem_.initial, index);
    for (std::int64_t begin = 0; begin < span.length; begin += kChunk) {
      keys_.take(state_head, span, begin, least(kChunk, span.length - begin));
      keys_.make_features(state_);
      prepare_values();
      for (std::int64_t g = 0; g < group; ++g) {
        attend(state_head * group + g, span, begin, outputs);
      }
      keys_.add_to(state_, log2_);
    }
    state_.store(s, outputs.state, index);
  }

 private:
  // Values that are not finite reach the rows from their own on, in their own column: the products
  // get zeros in their place.
  void prepare_values() {
    const auto n = keys_.tokens() * sizes_.dvp;
    Vec test{};  // NaN as soon as one value is not finite
    for (std::int64_t i = 0; i < n; i += kLanes) test += load(keys_.v() + i) * Vec{};
    const float sum = sum_lanes(test);
    finite_ = sum == sum;
    if (finite_) return;
    for (std::int64_t i = 0; i < n; ++i) {
      const float x = keys_.v()[i];
      finite_v_[i] = x * 0 == 0 ? x : 0;
    }
  }
  const float* values() const { return finite_ ? keys_.v() : finite_v_; }

  void attend(std::int64_t head, Span span, std::int64_t begin, const ForwardOutputs& outputs) {
    const auto& s = sizes_;
    const auto tokens = keys_.tokens();
    const auto first = span.begin + begin;
    query_projection_.pack(problem_.w_query, problem_.bias_query, head, problem_.heads);
    load_tokens(problem_.q, problem_.dtype, span.batch, head, first, tokens, s.d, s.dp, q_);
    query_projection_.token_major(q_, tokens, zeros_, weights_);
    RowScale rows[kChunk];
    for (std::int64_t i = 0; i < tokens; ++i) {
      float* row = weights_ + i * s.ldf;
      rows[i] = problem_.map == Map::kExponential
                    ? query_exponentials(s, row, keys_.reference(), state_.normalizer)
                    : query_values(problem_.map, s, query_projection_, row, state_.normalizer);
    }
    gemm<Plus::kNothing>(tokens, s.dvp, s.mp, {weights_, s.ldf, 1}, Right::rows(state_.sum, s.dvp),
                       out_, s.dvp);
    const bool reached = state_.reached(s);
    for (std::int64_t i = 0; i < tokens; i += kBlockRows) {
      attend_chunk(i, least<std::int64_t>(kBlockRows, tokens - i), rows);
    }
    if (problem_.map == Map::kExponential) replace_exact_rows(rows, reached);
    if (!finite_) spread_nonfinite(tokens);
    const auto row_index = (span.batch * problem_.heads + head) * problem_.query_length + first;
    for (std::int64_t i = 0; i < tokens; ++i) {
      divide_row(problem_.map, s, out_ + i * s.dvp, rows[i].sum,
                 reached || keys_.first_live() <= i);
      outputs.row_sum[row_index + i] = rows[i].sum;
      outputs.row_log2_scale[row_index + i] = static_cast<std::int32_t>(rows[i].log2);
    }
    store_tokens(outputs.out, problem_.dtype, span.batch, head, first, tokens, s.dv, s.dvp, out_);
  }

  // Rows [i, i + count) against the chunk's keys up to themselves.
  void attend_chunk(std::int64_t i, std::int64_t count, RowScale* rows) {
    const auto& s = sizes_;
    const auto columns = round_up(i + count, kLanes);
    float* scores = scores_ + i * kChunk;
    gemm<Plus::kNothing>(count, columns, s.mp, {weights_ + i * s.ldf, s.ldf, 1},
                       Right::rows(keys_.phi(), kChunk), scores, kChunk);
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
    gemm<Plus::kSelf>(count, s.dvp, i + count, {scores, kChunk, 1}, Right::rows(values(), s.dvp),
                      out_ + i * s.dvp, s.dvp);
  }

  void spread_nonfinite(std::int64_t tokens) {
    const auto dvp = sizes_.dvp;
    zero(spread_, dvp);
    for (std::int64_t i = 0; i < tokens; ++i) {
      for (std::int64_t e = 0; e < dvp; ++e) {
        const float x = keys_.v()[i * dvp + e];
        if (x * 0 != 0) spread_[e] += x;
        if (spread_[e] != 0) out_[i * dvp + e] += spread_[e];
      }
    }
  }

  void replace_exact_rows(RowScale* rows, bool reached) {
    bool projected = false;
    for (std::int64_t i = 0; i < keys_.tokens(); ++i) {
      const bool has_keys = reached || keys_.first_live() <= i;
      const bool weak = i >= keys_.bad() || (has_keys && rows[i].sum < kRowGuard);
      if (!weak) continue;
      if (!projected) keys_.project(log2_);
      projected = true;
      rows[i] = exact_row(i);
    }
  }

  // Row i with one scale per feature over the state and the keys j <= i: exponents of query and key
  // are added before the exponential, so that this is exact at any norm.
  RowScale exact_row(std::int64_t i) {
    const auto& s = sizes_;
    float* l = weights_ + i * s.ldf;
    query_projection_.token_major(q_ + i * s.dp, 1, zeros_, l);
    float top = -__builtin_inff();
    for (std::int64_t r = 0; r < s.m; ++r) {
      float c = state_.scale[r];
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
      for (std::int64_t e = 0; e < s.dv; ++e) out[e] += weight * values()[j * s.dvp + e];
    }
    for (std::int64_t r = 0; r < s.m; ++r) {
      if (state_.scale[r] <= kReachedScale) continue;
      const float weight = scalar_exp2(l[r] + (state_.scale[r] - log2));
      total += weight * state_.normalizer[r];
      for (std::int64_t e = 0; e < s.dv; ++e) out[e] += weight * state_.sum[r * s.dvp + e];
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
  ChunkKeys keys_;
  Projection query_projection_;
  State state_;
  float *q_, *weights_, *scores_, *out_, *finite_v_, *spread_, *zeros_, *log2_;
  bool finite_ = true;
};

inline void causal_forward(const FavorProblem& p, const ForwardOutputs& outputs,
                           const Executor& executor) {
  const Sizes s(p);
  const Items items{p.state_heads, p.sequences};
  const int tasks = static_cast<int>(least<std::int64_t>(executor.threads, items.count()));
  parallel(executor, tasks, [&](int task) {
    CausalForward forward(p, s, Scratch(thread_workspace(CausalForward::bytes(s))));
    for (std::int64_t item = items.count() * task / tasks; item < items.count() * (task + 1) / tasks;
         ++item) {
      forward.run(items.sequence(item), items.head(item), outputs);
    }
  });
}

}  // namespace performer::kernels::PERFORMER_ISA
