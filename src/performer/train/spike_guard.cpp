#include "performer/train/spike_guard.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace performer::train {

double SpikeGuard::limit(std::int64_t step) {
  while (!waiting_.empty() && waiting_.front().first <= step - 2) {
    const auto weight = 1.0 / static_cast<double>(std::min(++seen_, config_.spike_window));
    mean_ += weight * (waiting_.front().second - mean_);
    waiting_.pop_front();
  }
  const bool active = config_.spike != "off" && seen_ >= config_.spike_window;
  return active ? config_.spike_factor * mean_ : std::numeric_limits<double>::infinity();
}

void SpikeGuard::observe(std::int64_t step, double loss) { waiting_.emplace_back(step, loss); }

void SpikeGuard::reset() {
  mean_ = 0;
  seen_ = 0;
  waiting_.clear();
}

nlohmann::ordered_json SpikeGuard::state() const {
  return {{"mean", mean_}, {"seen", seen_}, {"waiting", waiting_}};
}

void SpikeGuard::load(const JsonView& state) {
  mean_ = state.at("mean").number();
  seen_ = state.at("seen").integer(0);
  waiting_.clear();
  const JsonView waiting = state.at("waiting");
  for (std::size_t i = 0; i < waiting.size(); ++i) {
    waiting_.emplace_back(waiting.at(i).at(0).integer(0), waiting.at(i).at(1).number());
  }
}

}  // namespace performer::train
