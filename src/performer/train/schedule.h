#pragma once

#include <cstdint>

#include "performer/run/train_config.h"

namespace performer::train {

/// Learning rate of `step` (0 is the first): a linear rise over `warmup` steps, then
///   constant       rate
///   linear         rate (1 - (1 - final_ratio) p),   p = share of the steps after the warm-up
///   cosine         rate (final_ratio + (1 - final_ratio) (1 + cos(pi p)) / 2)
///   inverse_sqrt   rate sqrt(max(warmup, 1) / (step + 1))
double learning_rate(const run::ScheduleConfig& schedule, double rate, std::int64_t step,
                     std::int64_t steps);

}  // namespace performer::train
