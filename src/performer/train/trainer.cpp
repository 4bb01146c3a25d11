#include "performer/train/trainer.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "performer/core/error.h"
#include "performer/core/log.h"
#include "performer/infer/generate.h"
#include "performer/run/make_model.h"
#include "performer/run/tokenizer_files.h"
#include "performer/train/schedule.h"

namespace performer::train {
namespace {

constexpr std::int64_t kSamples = 2, kSampleLength = 80;

std::optional<data::BatchStream> open_valid(const run::Recipe& recipe,
                                            const data::TokenSpace& space) {
  if (recipe.train.valid_every == 0) return {};
  if (!data::has_split(recipe.data, data::Split::kValid)) {
    log_warning(
        "no validation: data.valid is empty; set train.valid_every = 0 if this is intended");
    return {};
  }
  return data::BatchStream(data::open_dataset(recipe.data, data::Split::kValid, space),
                           data::Use::kEvaluation);
}

}  // namespace

Trainer::~Trainer() = default;

Trainer::Trainer(const run::Recipe& recipe, const TrainerOptions& options)
    : options_(options),
      train_data_(data::open_dataset(recipe.data, data::Split::kTrain)),
      valid_rows_(open_valid(recipe, train_data_->space())),
      recipe_(run::fitted_to(recipe, train_data_->space())),
      token_files_(run::tokenizer_files(train_data_->space())),
      store_(options.out),
      model_(run::make_model(recipe_, options.device)),
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
  const bool finished = progress_.step >= recipe_.train.steps;
  if (finished || patience_is_over()) {
    prune_again();
    return finished ? Outcome::kAlreadyFinished : Outcome::kEarlyStop;
  }
  start_prefetch();
  const StopSignal signal;
  reporter_.set_baselines(log_start(
      {recipe_, *train_data_, valid_rows_ ? &*valid_rows_ : nullptr, model_, options_.device}));
  std::optional<Outcome> outcome;
  while (!outcome) {
    take_step(progress_.step + 1);
    // A step that was gone back to has been validated before.
    const bool back = spike_ && roll_back(*std::exchange(spike_, {}));
    if (!back && due(recipe_.train.valid_every) && valid_rows_) validate();
    if (!back && due(recipe_.train.sample_every)) show_samples();
    outcome = reason_to_stop(signal);
    const bool unseen = outcome == Outcome::kFinished && !due(recipe_.train.valid_every);
    if (unseen && valid_rows_) validate();
    const bool regular = due(recipe_.train.checkpoint_every) || regular_owed_;
    if (!outcome && !regular) continue;
    if (save({regular, outcome.has_value()}) || !outcome) continue;
    if (*outcome == Outcome::kFinished) diverge("at the end, " + unsound_);
    outcome.reset();  // the steps to come decide: they are saved, or the run has diverged
  }
  prune_again();
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

data::BatchStream Trainer::training_rows() const { return {train_data_, data::Use::kTraining}; }

std::int64_t Trainer::wrapped(std::int64_t position) const {
  const auto repeated = options_.overfit * recipe_.train.batch;
  return repeated > 0 ? position % repeated : position;
}

void Trainer::start_prefetch() {
  const auto rows = recipe_.train.batch;
  data::Prefetcher::Options options;
  options.threads = static_cast<int>(recipe_.train.workers);
  batches_ = std::make_unique<data::Prefetcher>(
      [this, stream = training_rows(), begin = progress_.position, rows](std::int64_t index) {
        return stream.batch(wrapped(begin + index * rows), rows);
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
  // On the CPU nothing goes on in the background; what is to be gone back from must not be saved.
  if (options_.device.is_cpu() || recipe_.guard.spike == "rollback") settle();
}

void Trainer::settle() {
  if (!pending_) return;
  const auto report = pending_->wait();
  pending_.reset();
  reporter_.add(report);
  judge(report);
}

void Trainer::show_samples() {
  settle();
  const auto& space = train_data_->space();
  infer::SamplingOptions sampling;
  sampling.length = std::min<std::int64_t>(kSampleLength, recipe_.model.max_length - 1);
  sampling.seed = recipe_.seed;
  if (space.eos >= 0) sampling.stop = {space.eos};
  sampling.forbidden = space.never_generated();
  try {
    const auto samples = infer::generate(model_, {space.start}, sampling, kSamples).sequences;
    for (std::size_t i = 0; i < samples.size(); ++i) {
      log_info("step {}  sample {}: {}", progress_.step, i + 1, space.decode(samples[i]));
    }
  } catch (const Error& error) {  // whether the run has diverged is for the guard to say
    log_warning("step {}: no samples: {}", progress_.step, error.what());
  }
}

void Trainer::validate() {
  settle();
  infer::EvaluationOptions options;
  options.batch = recipe_.train.batch;
  options.max_batches = recipe_.train.valid_batches;
  options.device = options_.device;
  const auto result = infer::evaluate(model_, *valid_rows_, options);
  reporter_.add(progress_.step, "valid", result);
  const bool first = progress_.best_step == 0;
  if (!std::isfinite(result.loss()) || (!first && result.loss() >= progress_.best_loss)) {
    ++progress_.worse;
    return;
  }
  const auto before = progress_;
  progress_.best_loss = result.loss();
  progress_.best_step = progress_.step;
  progress_.worse = 0;
  save({.regular = true});
  if (saved_step_ == progress_.step) {
    mark_best();
  } else {  // a best that is nowhere must not keep later ones away
    progress_.best_loss = before.best_loss;
    progress_.best_step = before.best_step;
  }
}

}  // namespace performer::train
