#pragma once

#include "performer/data/data_config.h"

namespace performer::data {

/// kUsage where the configuration would read a pipe twice: for two splits, or for a task that looks
/// at its data first (classes, sizes of images, marked rows).
void check_pipes(const DataConfig& config);

}  // namespace performer::data
