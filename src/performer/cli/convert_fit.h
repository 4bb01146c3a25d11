#pragma once

#include <CLI/App.hpp>
#include <functional>
#include <string>
#include <vector>

#include "performer/cli/compute.h"
#include "performer/fit/fit.h"
#include "performer/pretrained/convert.h"

namespace performer::cli {

/// --calibrate, --fit and what goes with them: features that imitate the exact attention of the
/// model on a text.
struct FitCommand {
  std::string calibrate, fit;  // text; empty: not asked for
  fit::FitOptions how;
  std::int64_t steps = 0;  // of both stages, in the proportion of the defaults; 0: those
  std::int64_t length = 192;
  bool weights = false;
  ComputeOptions compute;
  std::vector<CLI::Option*> options;

  bool asked() const { return !calibrate.empty() || !fit.empty(); }
};

void add_fit_options(CLI::App& command, FitCommand& command_options);

/// kUsage for options that do not go together.
void check_fit(const FitCommand& c);

/// What convert() calls with the converted model. `seed`: of the windows of the text.
std::function<void(models::Transformer, const run::Recipe&, const data::TokenSpace&)> fitting(
    const FitCommand& c, std::uint64_t seed);

}  // namespace performer::cli
