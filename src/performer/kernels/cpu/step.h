#pragma once

#include "performer/kernels/cpu/causal_team.h"

// A few tokens after a state: streaming. The state is read and written once a call and token; W is
// read as it lies in memory, since packing it would cost as much as the step.
namespace performer::kernels::PERFORMER_ISA {

inline constexpr std::int64_t kMostSteps = 4;

class Step {
 public:
  Step(const FavorProblem& p, const Sizes& s, Scratch scratch)
      : problem_(p),
        sizes_(s),
        log_sum_(p),
        state_(s, scratch),
        x_(scratch.floats(s.dp)),
        v_(scratch.floats(s.dvp)),
        key_(scratch.floats(s.mp)),
        query_(scratch.floats(s.mp)),
        out_(scratch.floats(s.dvp)),
        token_(scratch.floats(1)) {}

  static std::size_t bytes(const Sizes& s) {
    const auto floats = State::floats(s) + s.dp + 2 * s.dvp + 2 * s.mp + 8 * kLine;
    return static_cast<std::size_t>(floats) * sizeof(float);
  }

  static bool serves(const FavorProblem& p) {
    return p.causal && p.query_offsets == nullptr && p.query_length <= kMostSteps &&
           !p.w_query.wide && !p.w_key.wide;
  }

  void run(std::int64_t n, std::int64_t state_head, const ForwardOutputs& outputs) {
    const auto& s = sizes_;
    const auto group = problem_.heads / problem_.state_heads;
    const auto index = n * problem_.state_heads + state_head;
    state_.load(s, problem_.initial, index);
    for (std::int64_t token = 0; token < problem_.key_length; ++token) {
      add_key(n, state_head, token);
      const bool reached = state_.reached(s);
      for (std::int64_t g = 0; g < group; ++g) {
        attend(n, state_head * group + g, token, reached, outputs);
      }
    }
    state_.store(s, outputs.state, index);
  }

 private:
  bool exponential() const { return problem_.map == Map::kExponential; }

  // u [mp] of the token in x_, with bias and token term; -inf in the padding of exponential maps,
  // 0 in that of the others.
  void project(const Parameter& w, const Parameter& bias, std::int64_t h, std::int64_t heads,
               float token, float* u) {
    const auto& s = sizes_;
    const double unit = exponential() ? 1.4426950408889634074 : 1.0;
    const auto factor = static_cast<float>(__builtin_sqrt(problem_.scale) * unit);
    if (w.data == nullptr) {
      for (std::int64_t i = 0; i < s.dp; i += kLanes) store(u + i, load(x_ + i) * splat(factor));
    } else {
      const auto rows = problem_.mirrored ? s.m / 2 : s.m;
      const auto* matrix =
          static_cast<const float*>(w.data) + head_of(h, heads, w.heads) * rows * s.d;
      for (std::int64_t r = 0; r < rows; ++r) u[r] = dot(matrix + r * s.d) * factor;
      if (problem_.mirrored) {
        for (std::int64_t r = 0; r < rows; ++r) u[rows + r] = -u[r];
      }
    }
    for (std::int64_t r = s.m; r < s.mp; ++r) u[r] = exponential() ? -__builtin_inff() : 0;
    if (!exponential()) return;
    const auto first = bias.data == nullptr ? 0 : head_of(h, heads, bias.heads) * s.m;
    for (std::int64_t r = 0; r < s.m; ++r) {
      const double b = bias.data == nullptr ? 0 : parameter_at(bias, first + r) * unit;
      u[r] = (u[r] + static_cast<float>(b)) + token;
    }
    if (log_sum_.active()) log_sum_.apply(u, s.mp);
  }

  float dot(const float* row) const {
    Vec sum{};
    std::int64_t i = 0;
    for (; i + kLanes <= sizes_.d; i += kLanes) sum += load(row + i) * load(x_ + i);
    float total = sum_lanes(sum);
    for (; i < sizes_.d; ++i) total += row[i] * x_[i];
    return total;
  }

  void values(float* u) {
    const auto eps = static_cast<float>(problem_.eps);
    map_values(problem_.map, u, u, &eps, 0, sizes_.mp);
    zero(u + sizes_.m, sizes_.mp - sizes_.m);
  }

  void add_key(std::int64_t n, std::int64_t head, std::int64_t token) {
    const auto& s = sizes_;
    Keys keys{x_, v_, token_, false, {}};
    load_keys(problem_, s, head, {n, 0, problem_.key_length}, token, 1, keys);
    if (keys.masked) return;
    project(problem_.w_key, problem_.bias_key, head, problem_.state_heads, *token_, key_);
    if (!exponential()) values(key_);
    for (std::int64_t r = 0; r < s.m; ++r) {
      const float needed = exponential() ? round_up_log2(key_[r]) : 0;
      if (needed > state_.scale[r]) state_.lift(s, r, needed);
    }
    for (std::int64_t r = 0; r < s.mp && exponential(); r += kLanes) {
      store(key_ + r, exp2(load(key_ + r) - load(state_.scale + r)));
    }
    for (std::int64_t r = 0; r < s.m; ++r) {
      const Vec phi = splat(key_[r]);
      state_.normalizer[r] += key_[r];
      float* sum = state_.sum + r * s.dvp;
      for (std::int64_t e = 0; e < s.dvp; e += kLanes) {
        store(sum + e, load(sum + e) + phi * load(v_ + e));
      }
    }
  }

  void attend(std::int64_t n, std::int64_t head, std::int64_t token, bool reached,
              const ForwardOutputs& outputs) {
    const auto& s = sizes_;
    load_tokens(problem_.q, problem_.dtype, n, head, token, 1, s.d, s.dp, x_);
    project(problem_.w_query, problem_.bias_query, head, problem_.heads, 0, query_);
    RowScale row{0, 0};
    if (exponential()) {
      row = query_exponentials(s, query_, state_.scale, state_.normalizer);
    } else {
      values(query_);
    }
    // In the order in which the backward pass forms a pair's weight: with one key it is then 1.
    row.sum = 0;
    for (std::int64_t r = 0; r < s.m; ++r) row.sum += query_[r] * state_.normalizer[r];
    gemm<Plus::kNothing>(1, s.dvp, s.m, {query_, 0, 1}, Right::rows(state_.sum, s.dvp), out_,
                         s.dvp);
    divide_row(problem_.map, s, out_, row.sum, reached);
    const auto index = (n * problem_.heads + head) * problem_.query_length + token;
    outputs.row_sum[index] = row.sum;
    outputs.row_log2_scale[index] = static_cast<std::int32_t>(row.log2);
    store_tokens(outputs.out, problem_.dtype, n, head, token, 1, s.dv, s.dvp, out_);
  }

  const FavorProblem& problem_;
  const Sizes& sizes_;
  LogSum log_sum_;
  State state_;
  float *x_, *v_, *key_, *query_, *out_, *token_;
};

inline void step_forward(const FavorProblem& p, const ForwardOutputs& outputs,
                         const Executor& executor) {
  const Sizes s(p);
  const Items items{p.state_heads, p.sequences};
  const int tasks = static_cast<int>(least<std::int64_t>(executor.threads, items.count()));
  parallel(executor, tasks, [&](int task) {
    Step step(p, s, Scratch(thread_workspace(Step::bytes(s))));
    for (auto item = items.count() * task / tasks; item < items.count() * (task + 1) / tasks;
         ++item) {
      step.run(items.sequence(item), items.head(item), outputs);
    }
  });
}

}  // namespace performer::kernels::PERFORMER_ISA
