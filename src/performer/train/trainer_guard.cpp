// What a run does about steps that harm it.
#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "performer/core/error.h"
#include "performer/core/log.h"
#include "performer/run/finite.h"
#include "performer/run/make_model.h"
#include "performer/train/trainer.h"

namespace performer::train {
namespace {

constexpr std::size_t kNamedRows = 4;  // of a bad batch, in its warning

}  // namespace

void Trainer::judge(const StepReport& report) {
  const bool spike = report.finite() && report.loss() > report.limit;
  if (report.finite() && !spike) guard_.observe(report.step, report.loss());
  if (!report.skipped) proven_step_ = saved_step_;
  progress_.skipped = report.skipped ? progress_.skipped + 1 : 0;
  not_finite_ = report.finite() || report.overflowed() ? 0 : not_finite_ + 1;
  if (report.finite() && !spike) return;
  warn_of(report);
  if (spike && recipe_.guard.spike == "rollback") spike_ = report;
  if (progress_.skipped >= recipe_.guard.max_skipped) {
    diverge(fmt::format("{} steps in a row were skipped, the last at step {}", progress_.skipped,
                        report.step));
  }
}

void Trainer::warn_of(const StepReport& report) {
  const bool spike = report.finite();
  const auto what =
      spike ? fmt::format("loss {:.4f} is above the limit {:.4f}", report.loss(), report.limit)
            : fmt::format("loss {} with gradient norm {}", report.loss(), report.gradient_norm);
  log_warning("step {}: {}; {}; rows {} …", report.step, what,
              report.skipped ? "the step is skipped" : "the step is taken",
              fmt::join(report.samples.begin(),
                        report.samples.begin() + static_cast<std::ptrdiff_t>(
                                                     std::min(kNamedRows, report.samples.size())),
                        ", "));
  reporter_.event({{"step", report.step},
                   {"event", spike ? "spike" : "not_finite"},
                   {"loss", report.loss()},
                   {"skipped", report.skipped},
                   {"samples", report.samples}});
}

// The rows to come judge the weights as the last step has left them, which no step has seen yet.
std::optional<std::string> Trainer::unsound() {
  if (not_finite_ > 0) {
    return fmt::format("the last {} were not finite",
                       not_finite_ > 1 ? fmt::format("{} steps", not_finite_) : "step");
  }
  for (const auto& tensors :
       {run::model_tensors(model_, step_.weights().masters()), step_.state()}) {
    if (auto text = run::find_not_finite(tensors)) return text;
  }
  const auto limit = guard_.limit(progress_.step + 1);
  const auto loss =
      step_.probe(training_rows().batch(wrapped(progress_.position), recipe_.train.batch));
  if (!std::isfinite(loss)) return "loss or gradient of the rows to come is not finite";
  if (progress_.skipped > 0 && loss > limit) {
    return fmt::format("after a skipped step the loss {:.4f} is still above the limit {:.4f}", loss,
                       limit);
  }
  return {};
}

void Trainer::diverge(const std::string& why) {
  std::optional<std::int64_t> good;
  if (saved_step_ > 0) {
    good = proven_step_ == saved_step_ ? saved_step_ : store_.take_back(saved_step_);
  }
  fail(ExitCode::kDiverged,
       "{}: training diverged: {}; {}; lower optimizer.rate or lengthen schedule.warmup",
       options_.out.string(), why,
       good ? fmt::format("the last good checkpoint is of step {}", *good)
            : std::string("there is no good checkpoint"));
}

bool Trainer::roll_back(const StepReport& report) {
  settle();
  spike_.reset();  // a second spike meanwhile is undone with the first
  const auto event = [&](std::int64_t step) {
    reporter_.event({{"step", step}, {"event", "rollback"}, {"from", report.step}});
  };
  auto kept = progress_;
  ++kept.extra_draws;
  guard_.reset();
  std::optional<run::Checkpoint> checkpoint;
  if (progress_.regular > 0) {
    checkpoint = store_.newest_good_up_to(
        progress_.regular, [](const Error& error) { log_warning("{}", error.what()); });
  }
  if (!checkpoint) {
    progress_.extra_draws = kept.extra_draws;
    log_warning(
        "step {}: there is no checkpoint to go back to; training goes on, with new random features",
        report.step);
    event(report.step);
  } else {
    if (++kept.rollbacks > recipe_.guard.max_rollbacks) {
      diverge(fmt::format("{} rollbacks to step {} did not help, the last from step {}",
                          kept.rollbacks - 1, checkpoint->step(), report.step));
    }
    go_back_to(*checkpoint);
    // The rows of the spike are not taken again, and endless spikes end as divergence.
    progress_.position = kept.position;
    progress_.extra_draws = kept.extra_draws;
    progress_.skipped = kept.skipped;
    progress_.rollbacks = kept.rollbacks;
    progress_.data = kept.data;
    progress_.changes = kept.changes;
    guard_.reset();
    log_warning("step {}: rolled back to step {}, with new random features", report.step,
                progress_.step);
    // Of the next step: a kill before the next save cuts this line, and the rollback happens again.
    event(progress_.step + 1);
  }
  return checkpoint.has_value();
}

void Trainer::go_back_to(const run::Checkpoint& checkpoint) {
  load(checkpoint);
  try_to_write("newer checkpoints not removed", [&] { store_.go_back_to(checkpoint); });
  reporter_.cut_after(progress_.step);
  saved_step_ = proven_step_ = progress_.step;
  not_finite_ = 0;
  unsound_.clear();
  refusals_ = 0;
  regular_owed_ = false;
}

}  // namespace performer::train
