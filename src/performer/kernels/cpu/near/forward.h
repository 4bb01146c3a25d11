#pragma once

#include "performer/kernels/cpu/near/forward_rows.h"
#include "performer/kernels/cpu/near/near_state.h"
#include "performer/kernels/cpu/near/sums.h"
#include "performer/kernels/cpu/near/walk.h"

// The forward pass with a near field.
namespace performer::kernels::PERFORMER_ISA {

class NearForward {
 public:
  NearForward(const FavorProblem& p, const Sizes& s, Scratch& scratch,
              const ForwardOutputs& outputs)
      : problem_(p),
        sizes_(s),
        outputs_(outputs),
        keys_(p, s, scratch),
        window_(p, s, scratch, false),
        rows_(p, s, scratch) {}

  static std::int64_t floats(const FavorProblem& p, const Sizes& s) {
    return KeySums::floats(s) + Window::floats(p, s, false) + ForwardRows::floats(p, s);
  }

  void begin(const Slots& at, std::int64_t state_head, const Stretch&) {
    at_ = &at, head_ = state_head;
    window_.clear();
    if (at.origin > 0) write_zeros();
  }

  void add(std::int64_t c, State& to, Holds holds) { keys_.add(*at_, head_, c, to, holds); }

  void use(std::int64_t c, const State& far) {
    const auto take = [&](std::int64_t index) { return &window_.take(*at_, head_, index); };
    NearTile tile{take(c - 1), take(c), nullptr, 0, 0};
    if (!problem_.causal && c + 1 < at_->blocks()) tile.after = take(c + 1);
    rows_.attend(*at_, head_, tile, far, outputs_);
  }

  void finish(State& sums) {
    const auto last = at_->blocks() - 2;
    if (at_->joined() > last) keys_.add(*at_, head_, last, sums, Holds::kSums);
    sums.store(sizes_, outputs_.state, state_index(problem_, at_->sequence, head_));
    FinalNear(problem_, sizes_, *at_, head_).store(outputs_.near_state);
  }

 private:
  // Rows before the first real token see nothing. Each stretch may say so.
  void write_zeros() {
    const auto group = problem_.heads / problem_.state_heads;
    float* zeros = rows_.zero_row();
    for (std::int64_t t = 0; t < at_->origin; ++t) {
      const auto token = at_->span.begin + t;
      for (auto head = head_ * group; head < (head_ + 1) * group; ++head) {
        const auto row = (at_->span.batch * problem_.heads + head) * problem_.query_length + token;
        outputs_.row_sum[row] = 0, outputs_.row_log2_scale[row] = 0;
        store_tokens(outputs_.out, problem_.dtype, at_->span.batch, head, token, 1, sizes_.dv,
                     sizes_.dvp, zeros);
      }
    }
  }

  const FavorProblem& problem_;
  const Sizes& sizes_;
  const ForwardOutputs& outputs_;
  KeySums keys_;
  Window window_;
  ForwardRows rows_;
  const Slots* at_ = nullptr;
  std::int64_t head_ = 0;
};

inline void near_forward(const FavorProblem& p, const ForwardOutputs& outputs,
                         const Executor& executor) {
  const Sizes s(p);
  NearWalk<NearForward, ForwardOutputs> walk(p, s, p.causal ? Far::kBefore : Far::kBoth, executor);
  auto* room = static_cast<float*>(
      call_workspace(static_cast<std::size_t>(walk.room_floats()) * sizeof(float)));
  walk.run(p.initial, outputs, room);
}

}  // namespace performer::kernels::PERFORMER_ISA
