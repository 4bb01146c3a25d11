#pragma once

#include <cstdint>
#include <deque>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <utility>

#include "performer/core/json.h"
#include "performer/run/train_config.h"

namespace performer::train {

/// Knows what loss is too high: spike_factor times the running mean over the last spike_window
/// steps. The limit of step n uses losses up to n - 2 alone, whether later ones are known or not:
/// losses arrive a step late, and a resumed run must decide as an uninterrupted one.
class SpikeGuard {
 public:
  explicit SpikeGuard(const run::GuardConfig& config) : config_(config) {}

  /// Infinity while there is no limit.
  double limit(std::int64_t step);
  /// The finite loss of `step`; spikes themselves stay out of the mean.
  void observe(std::int64_t step, double loss);
  void reset();

  nlohmann::ordered_json state() const;
  void load(const JsonView& state);

 private:
  run::GuardConfig config_;
  double mean_ = 0;
  std::int64_t seen_ = 0;
  std::deque<std::pair<std::int64_t, double>> waiting_;  // (step, loss) not yet in the mean
};

}  // namespace performer::train
