#pragma once

#include "performer/kernels/cpu/features.h"
#include "performer/kernels/cpu/gemm.h"
#include "performer/kernels/cpu/sum_pieces.h"

// Bidirectional FAVOR+: (S, z, c) over all keys, then every query against them.
//   keys     phi = 2^(l - c)         S += phi^T v,  z += sum phi
//   queries  w   = 2^(l + c - shift) out = w S / w.z
namespace performer::kernels::PERFORMER_ISA {

/// A denominator of exactly 0 gives 0; exponential features that sum to 0 left the range of the
/// scales.
inline void divide_row(Map map, const Sizes& s, float* row, float sum, bool reached) {
  const bool lost = reached && map == Map::kExponential;
  const Vec zero_row = splat(lost ? __builtin_nanf("") : 0);
  for (std::int64_t i = 0; i < s.dvp; i += kLanes) {
    store(row + i, sum == 0 ? zero_row : load(row + i) / splat(sum));
  }
}

/// One thread's scratch and the passes over its pieces.
class Forward {
 public:
  static constexpr std::int64_t kTokens = kTile;

  Forward(const FavorProblem& p, const Sizes& s, Scratch scratch)
      : problem_(p),
        sizes_(s),
        projection_(p, s, scratch),
        state_(s, scratch),
        features_(scratch.floats(kTile * s.ldf)),
        x_(scratch.floats(kTile * s.dp)),
        v_(scratch.floats(kTile * s.dvp)),
        token_(scratch.floats(kTile)) {}

  static std::size_t bytes(const Sizes& s) {
    const auto floats =
        Projection::floats(s) + State::floats(s) + kTile * (s.ldf + s.dp + s.dvp + 1) + 4 * kLine;
    return static_cast<std::size_t>(floats) * sizeof(float);
  }

  State& state() { return state_; }

  /// Adds the keys [begin, end) of a sequence to the state.
  void add_keys(std::int64_t state_head, Span span, std::int64_t begin, std::int64_t end) {
    const auto& s = sizes_;
    projection_.pack_keys(state_head);
    Keys keys{x_, v_, token_, false, {}};
    for (; begin < end; begin += kTile) {
      const auto tokens = least(kTile, end - begin);
      load_keys(problem_, s, state_head, span, begin, tokens, keys);
      projection_.token_major(x_, tokens, token_, features_);
      if (problem_.map == Map::kExponential) {
        if (any_live(keys, tokens)) lift_scales(s, features_, tokens, state_);
        key_exponentials(s, features_, tokens, state_.scale, state_.normalizer);
      } else {
        key_values(problem_.map, s, projection_, keys, features_, tokens);
        add_columns(s, features_, tokens, state_.normalizer);
        touch_scales(keys, tokens);
      }
      gemm<Plus::kSelf>(s.mp, s.dvp, tokens, {features_, 1, s.ldf}, Right::rows(v_, s.dvp),
                        state_.sum, s.dvp);
    }
  }

  /// Writes the rows of the queries [begin, end) of a sequence.
  void attend(std::int64_t head, Span span, std::int64_t begin, std::int64_t end,
              const ForwardOutputs& outputs) {
    const auto& s = sizes_;
    projection_.pack_queries(head);
    const bool reached = state_.reached(s);
    zero(token_, kTile);
    for (; begin < end; begin += kTile) {
      const auto tokens = least(kTile, end - begin);
      const auto first = span.begin + begin;
      load_tokens(problem_.q, problem_.dtype, span.batch, head, first, tokens, s.d, s.dp, x_);
      projection_.token_major(x_, tokens, token_, features_);
      RowScale rows[kTile];
      for (std::int64_t t = 0; t < tokens; ++t) {
        float* row = features_ + t * s.ldf;
        rows[t] = problem_.map == Map::kExponential
                      ? query_exponentials(s, row, state_.scale, state_.normalizer)
                      : query_values(problem_.map, s, projection_, row, state_.normalizer);
      }
      gemm<Plus::kNothing>(tokens, s.dvp, s.mp, {features_, s.ldf, 1},
                           Right::rows(state_.sum, s.dvp), v_, s.dvp);
      const auto row_index = (span.batch * problem_.heads + head) * problem_.query_length + first;
      for (std::int64_t t = 0; t < tokens; ++t) {
        divide_row(problem_.map, s, v_ + t * s.dvp, rows[t].sum, reached);
        outputs.row_sum[row_index + t] = rows[t].sum;
        outputs.row_log2_scale[row_index + t] = static_cast<std::int32_t>(rows[t].log2);
      }
      store_tokens(outputs.out, problem_.dtype, span.batch, head, first, tokens, s.dv, s.dvp, v_);
    }
  }

 private:
  /// Features of generalised maps have scale 1 as soon as a key arrived.
  void touch_scales(const Keys& keys, std::int64_t tokens) {
    if (!any_live(keys, tokens) || state_.scale[0] > kReachedScale) return;
    for (std::int64_t r = 0; r < sizes_.m; ++r) state_.scale[r] = 0;
  }

  const FavorProblem& problem_;
  const Sizes& sizes_;
  Projection projection_;
  State state_;
  float *features_, *x_, *v_, *token_;
};

inline void bidirectional_forward(const FavorProblem& p, const ForwardOutputs& outputs,
                                  const Executor& executor) {
  const Sizes s(p);
  const int tasks = executor.threads;
  const Items key_items{p.state_heads, p.sequences};
  const auto key_length = [&](std::int64_t n) { return key_span(p, n).length; };
  sum_pieces<Forward>(p, s, executor, key_items, key_length, p.initial, outputs.state,
                      [&](Forward& forward, std::int64_t n, const Piece& piece) {
                        forward.add_keys(key_items.head(piece.item), key_span(p, n), piece.begin,
                                         piece.end);
                      });

  const Items query_items{p.heads, p.sequences};
  const auto query_length = [&](std::int64_t n) { return query_span(p, n).length; };
  parallel(executor, tasks, [&](int task) {
    Forward forward(p, s, Scratch(thread_workspace(Forward::bytes(s))));
    for_each_piece(query_items, kTile, task, tasks, query_length, [&](const Piece& piece) {
      const auto n = query_items.sequence(piece.item);
      const auto head = query_items.head(piece.item);
      forward.state().load(s, outputs.state,
                           state_index(p, n, head_of(head, p.heads, p.state_heads)));
      forward.attend(head, query_span(p, n), piece.begin, piece.end, outputs);
    });
  });
}

}  // namespace performer::kernels::PERFORMER_ISA
