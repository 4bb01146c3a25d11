#pragma once

#include <CLI/App.hpp>
#include <filesystem>
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
  std::int64_t length = 128;
  std::int64_t save_seconds = 60;
  bool weights = false, restart = false;
  ComputeOptions compute;
  std::vector<CLI::Option*> options;

  bool asked() const { return !calibrate.empty() || !fit.empty(); }
};

void add_fit_options(CLI::App& command, FitCommand& command_options);

/// kUsage for options that do not go together.
void check_fit(const FitCommand& c);

/// Where the fit of a new folder is kept while it runs: OUT.partial.
std::filesystem::path unfinished_of(const std::filesystem::path& out);

/// What convert() calls with the converted model. `seed`: of the windows of the text.
std::function<pretrained::Files(models::Transformer, const run::Recipe&, const data::TokenSpace&)>
fitting(const FitCommand& c, const std::filesystem::path& out, std::uint64_t seed);
/// Takes away what is kept of a fit whose folder is there.
void forget_fit(const FitCommand& c, const std::filesystem::path& out);

}  // namespace performer::cli
