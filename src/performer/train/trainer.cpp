#include "performer/train/trainer.h"

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "performer/core/error.h"
#include "performer/core/log.h"
#include "performer/train/generate.h"
#include "performer/train/run_state.h"
#include "performer/train/schedule.h"

namespace performer::train {
namespace {

constexpr std::int64_t kSamples = 2, kSampleLength = 80;
constexpr std::size_t kNamedRows = 4;  // of a bad batch, in its warning

std::optional<data::BatchStream> open_valid(const Recipe& recipe, const data::TokenSpace& space) {
  if (recipe.train.valid_every == 0) return {};
  if (!data::has_split(recipe.data, data::Split::kValid)) {
    log_warning("no validation: data.valid is empty; train.valid_every = 0 says that it is meant");
    return {};
  }
  return data::BatchStream(data::open_dataset(recipe.data, data::Split::kValid, space),
                           data::Use::kEvaluation);
}

}  // namespace

Trainer::~Trainer() = default;

Trainer::Trainer(const Recipe& recipe, const TrainerOptions& options)
    : options_(options),
      train_data_(data::open_dataset(recipe.data, data::Split::kTrain)),
      valid_rows_(open_valid(recipe, train_data_->space())),
      recipe_(fitted_to(recipe, train_data_->space())),
      store_(options.out),
      model_(make_model(recipe_, options.device)),
      step_(model_, recipe_, options.device),
      reporter_(options.out, recipe.train),
      guard_(recipe.guard),
      started_(std::chrono::steady_clock::now()) {
  if (options.restart) forget_earlier_run();
}

bool Trainer::patience_is_over() const {
  return recipe_.train.patience > 0 && progress_.worse >= recipe_.train.patience;
}

bool Trainer::due(std::int64_t every) const { return every > 0 && progress_.step % every == 0; }

Outcome Trainer::run() {
  restore();
  if (progress_.step >= recipe_.train.steps) return Outcome::kAlreadyFinished;
  if (patience_is_over()) return Outcome::kEarlyStop;
  start_prefetch();
  const StopSignal signal;
  std::optional<Outcome> outcome;
  while (!outcome) {
    take_step(progress_.step + 1);
    // A step that was gone back to has been validated before.
    const bool back = spike_ && roll_back(*std::exchange(spike_, {}));
    if (!back && due(recipe_.train.valid_every) && valid_rows_) validate();
    if (!back && due(recipe_.train.sample_every)) show_samples();
    outcome = reason_to_stop(signal);
    if (due(recipe_.train.checkpoint_every) || outcome) save(outcome.has_value());
  }
  return *outcome;
}

std::optional<Outcome> Trainer::reason_to_stop(const StopSignal& signal) const {
  if (progress_.step >= recipe_.train.steps) return Outcome::kFinished;
  if (signal.requested() != 0) return Outcome::kPreempted;
  if (patience_is_over()) return Outcome::kEarlyStop;
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - started_;
  if (recipe_.train.seconds > 0 && spent.count() >= static_cast<double>(recipe_.train.seconds)) {
    return Outcome::kTimeLimit;
  }
  return {};
}

void Trainer::start_prefetch() {
  const auto rows = recipe_.train.batch;
  const auto repeat = options_.overfit;
  data::Prefetcher::Options options;
  options.first = progress_.position / rows;
  options.threads = static_cast<int>(recipe_.train.workers);
  const data::BatchStream stream(train_data_, data::Use::kTraining);
  batches_ = std::make_unique<data::Prefetcher>(
      [stream, rows, repeat](std::int64_t index) {
        return stream.batch((repeat > 0 ? index % repeat : index) * rows, rows);
      },
      options);
}

void Trainer::redraw_for(std::int64_t step) {
  const auto interval = recipe_.model.attention.redraw_interval;
  const auto draw = (interval > 0 ? (step - 1) / interval : 0) + progress_.extra_draws;
  if (draw != model_->draw()) model_->redraw(draw);
}

void Trainer::take_step(std::int64_t step) {
  redraw_for(step);
  StepPlan plan;
  plan.step = step;
  plan.rate =
      learning_rate(recipe_.schedule, recipe_.optimizer.rate, step - 1, recipe_.train.steps);
  plan.limit = guard_.limit(step);
  plan.skip_spikes = recipe_.guard.spike == "skip" || recipe_.guard.spike == "rollback";
  auto report = step_.run(plan, [&] {
    progress_.position += recipe_.train.batch;
    return batches_->next();
  });
  settle();  // of the step before, while the device works on this one
  pending_ = std::move(report);
  progress_.step = step;
  if (options_.device.is_cpu()) settle();  // nothing goes on in the background
}

void Trainer::settle() {
  if (!pending_) return;
  const auto report = pending_->wait();
  pending_.reset();
  reporter_.add(report);
  judge(report);
}

void Trainer::judge(const StepReport& report) {
  const bool finite = std::isfinite(report.loss()) && std::isfinite(report.gradient_norm);
  const bool spike = finite && report.loss() > report.limit;
  if (finite && !spike) guard_.observe(report.step, report.loss());
  progress_.skipped = report.skipped ? progress_.skipped + 1 : 0;
  if (finite && !spike) return;
  const auto what =
      finite ? fmt::format("loss {:.4f} is above the limit {:.4f}", report.loss(), report.limit)
             : fmt::format("loss {} with gradient norm {}", report.loss(), report.gradient_norm);
  log_warning("step {}: {}; {}; rows {} …", report.step, what,
              report.skipped ? "the step is skipped" : "the step is taken",
              fmt::join(report.samples.begin(),
                        report.samples.begin() + static_cast<std::ptrdiff_t>(
                                                     std::min(kNamedRows, report.samples.size())),
                        ", "));
  reporter_.event({{"step", report.step},
                   {"event", finite ? "spike" : "not_finite"},
                   {"loss", report.loss()},
                   {"skipped", report.skipped},
                   {"samples", report.samples}});
  if (spike && recipe_.guard.spike == "rollback") spike_ = report;
  if (progress_.skipped >= recipe_.guard.max_skipped) {
    fail(ExitCode::kDiverged,
         "{}: training diverged: {} steps in a row were skipped, the last at step {}; lower "
         "optimizer.rate or lengthen schedule.warmup",
         options_.out.string(), progress_.skipped, report.step);
  }
}

bool Trainer::roll_back(const StepReport& report) {
  settle();
  spike_.reset();                            // a second spike meanwhile is undone with the first
  const auto position = progress_.position;  // the rows of the spike are not taken again
  const auto draws = progress_.extra_draws + 1;
  const auto skipped = progress_.skipped;  // so that endless rollbacks end as divergence
  const auto checkpoint =
      store_.newest_good([](const Error& error) { log_warning("{}", error.what()); });
  if (checkpoint) {
    load(*checkpoint);
    saved_step_ = progress_.step;
    store_.forget_after(progress_.step);
    reporter_.cut_after(progress_.step);
  }
  progress_.position = position;
  progress_.extra_draws = draws;
  progress_.skipped = skipped;
  guard_.reset();
  log_warning("step {}: {}, with new random features", report.step,
              checkpoint ? fmt::format("rolled back to step {}", progress_.step)
                         : std::string("there is no checkpoint to go back to; training goes on"));
  // Of the next step: a kill before the next save cuts this line, and the rollback happens again.
  reporter_.event({{"step", progress_.step + 1}, {"event", "rollback"}, {"from", report.step}});
  return checkpoint.has_value();
}

void Trainer::show_samples() {
  settle();
  const auto& space = train_data_->space();
  SamplingOptions sampling;
  sampling.length = std::min<std::int64_t>(kSampleLength, recipe_.model.max_length - 1);
  sampling.seed = recipe_.seed;
  sampling.stop = space.eos;
  sampling.forbidden = never_generated(space);
  const auto samples = generate(model_, {space.start}, sampling, kSamples).sequences;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    log_info("step {}  sample {}: {}", progress_.step, i + 1, space.decode(samples[i]));
  }
}

void Trainer::validate() {
  settle();
  EvaluationOptions options;
  options.batch = recipe_.train.batch;
  options.max_batches = recipe_.train.valid_batches;
  options.device = options_.device;
  const auto result = evaluate(model_, *valid_rows_, options);
  reporter_.add(progress_.step, "valid", result);
  const bool first = progress_.best_step == 0;
  if (std::isfinite(result.loss()) && (first || result.loss() < progress_.best_loss)) {
    progress_.best_loss = result.loss();
    progress_.best_step = progress_.step;
    progress_.worse = 0;
    save(false);
    if (saved_step_ == progress_.step) mark_best();
  } else {
    ++progress_.worse;
  }
}

}  // namespace performer::train
