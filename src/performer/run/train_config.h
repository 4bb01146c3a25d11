#pragma once

#include <cstdint>
#include <string>
#include <type_traits>

#include "performer/core/config.h"

namespace performer::run {

inline constexpr std::int64_t kMaxCount = std::int64_t{1} << 40;  // of steps, tokens, seconds
inline constexpr std::int64_t kMaxBatch = 1 << 20;

/// Defaults are the paper's (Appendix A): Adam 0.9/0.98/1e-9, rate 1e-3, weight decay 0.1, clip
/// 0.5.
struct OptimizerConfig {
  std::string kind = "adamw";
  double rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.98;
  double eps = 1e-9;
  double weight_decay = 0.1;
  bool decay_vectors = false;
  double clip = 0.5;
};

struct ScheduleConfig {
  std::string kind = "constant";
  std::int64_t warmup = 0;
  double final_ratio = 0;
};

struct GuardConfig {
  std::string spike = "warn";
  double spike_factor = 2;
  std::int64_t spike_window = 100;
  std::int64_t max_skipped = 25;
  std::int64_t max_rollbacks = 5;
};

struct TrainConfig {
  std::int64_t steps = 1000;
  std::int64_t seconds = 0;
  std::int64_t batch = 16;
  std::int64_t step_tokens = 0;
  std::string precision = "fp32";
  std::int64_t log_every = 10;
  std::int64_t valid_every = 200;
  std::int64_t valid_batches = 20;
  std::int64_t patience = 0;
  std::int64_t checkpoint_every = 200;
  std::int64_t keep_last = 2;
  std::int64_t keep_every = 0;
  std::int64_t sample_every = 0;
  std::int64_t workers = 1;
};

template <class Config, class Visitor>
requires std::is_same_v<std::remove_const_t<Config>, OptimizerConfig>
void visit_fields(Config& c, Visitor&& field) {
  field("kind", c.kind, "Decoupled weight decay, or decay as a part of the gradient.",
        {"adamw", "adam"});
  field("rate", c.rate, "Learning rate at the top of the schedule.",
        Aliases{"lr", "learning_rate"});
  field("beta1", c.beta1, "Decay of the mean of gradients.");
  field("beta2", c.beta2, "Decay of the mean of squared gradients.");
  field("eps", c.eps, "Added to the root of the mean square.");
  field("weight_decay", c.weight_decay, "Weight decay.");
  field("decay_vectors", c.decay_vectors, "Decay biases and norms too, not matrices alone.");
  field("clip", c.clip, "Largest norm of the whole gradient; 0: no clipping.",
        Aliases{"grad_clip", "max_grad_norm"});
}

template <class Config, class Visitor>
requires std::is_same_v<std::remove_const_t<Config>, ScheduleConfig>
void visit_fields(Config& c, Visitor&& field) {
  field("kind", c.kind, "How the rate falls after the warm-up.",
        {"constant", "linear", "cosine", "inverse_sqrt"});
  field("warmup", c.warmup, "Steps in which the rate rises from 0.", Range{0, kMaxCount},
        Aliases{"warmup_steps"});
  field("final_ratio", c.final_ratio, "Last rate / top rate of linear and cosine.");
}

template <class Config, class Visitor>
requires std::is_same_v<std::remove_const_t<Config>, GuardConfig>
void visit_fields(Config& c, Visitor&& field) {
  field("spike", c.spike, "What a loss spike does.", {"off", "warn", "skip", "rollback"});
  field("spike_factor", c.spike_factor, "A spike is a loss above this times the running mean.");
  field("spike_window", c.spike_window, "Steps of the running mean; no spikes before that many.",
        Range{1, kMaxCount});
  field("max_skipped", c.max_skipped, "Skipped steps in a row that end the run as diverged.",
        Range{1, kMaxCount});
  field("max_rollbacks", c.max_rollbacks,
        "Rollbacks to one checkpoint; one more ends the run as diverged.", Range{0, kMaxCount});
}

template <class Config, class Visitor>
requires std::is_same_v<std::remove_const_t<Config>, TrainConfig>
void visit_fields(Config& c, Visitor&& field) {
  field("steps", c.steps, "Optimizer steps of the whole run.", Range{1, kMaxCount},
        Aliases{"max_steps", "num_steps"}, Resembles{"epochs", "num_epochs", "max_epochs"});
  field("seconds", c.seconds, "Ends the run early after so many seconds of training; 0: no limit.",
        Range{0, kMaxCount});
  field("batch", c.batch, "Rows of a batch on the device at once.", Range{1, kMaxBatch},
        Aliases{"batch_size"});
  field("step_tokens", c.step_tokens, "A step sums batches up to so many tokens; 0: one batch.",
        Range{0, kMaxCount});
  field("precision", c.precision, "Of weights and activations; masters and optimizer are fp32.",
        {"fp32", "bf16", "fp16"},
        Hints{{"float32", "fp32"}, {"bfloat16", "bf16"}, {"float16", "fp16"}, {"half", "fp16"}});
  field("log_every", c.log_every, "Steps between metric lines.", Range{1, kMaxCount});
  field("valid_every", c.valid_every, "Steps between validations; 0: none.", Range{0, kMaxCount});
  field("valid_batches", c.valid_batches, "Batches of a validation; 0: the whole split.",
        Range{0, kMaxCount});
  field("patience", c.patience, "Validations without a better loss that end the run; 0: never.",
        Range{0, kMaxCount});
  field("checkpoint_every", c.checkpoint_every, "Steps between checkpoints; 0: at the end alone.",
        Range{0, kMaxCount});
  field("keep_last", c.keep_last, "Newest checkpoints kept, beside the best.", Range{1, kMaxCount});
  field("keep_every", c.keep_every, "Checkpoints at multiples of this stay for good; 0: none.",
        Range{0, kMaxCount});
  field("sample_every", c.sample_every, "Steps between generated samples; 0: none.",
        Range{0, kMaxCount});
  field("workers", c.workers, "Threads that prepare batches.", Range{1, 64});
}

}  // namespace performer::run
