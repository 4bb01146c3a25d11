#include "performer/train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace performer::train {

double learning_rate(const run::ScheduleConfig& schedule, double rate, std::int64_t step,
                     std::int64_t steps) {
  const auto warmup = schedule.warmup;
  if (step < warmup) return rate * static_cast<double>(step + 1) / static_cast<double>(warmup);
  if (schedule.kind == "inverse_sqrt") {
    const auto top = static_cast<double>(std::max<std::int64_t>(warmup, 1));
    return rate * std::sqrt(top / static_cast<double>(step + 1));
  }
  const auto rest = static_cast<double>(std::max<std::int64_t>(steps - 1 - warmup, 1));
  const double p = std::min(1.0, static_cast<double>(step - warmup) / rest);
  const double last = schedule.final_ratio;
  if (schedule.kind == "linear") return rate * (1 - (1 - last) * p);
  if (schedule.kind == "cosine") {
    return rate * (last + (1 - last) * (1 + std::cos(std::numbers::pi * p)) / 2);
  }
  return rate;
}

}  // namespace performer::train
