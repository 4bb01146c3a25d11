#pragma once

#include <CLI/App.hpp>
#include <string>
#include <vector>

#include "performer/cli/compute.h"
#include "performer/infer/load_model.h"

namespace performer::cli {

/// What every command that uses a trained model has: which one, how it is held, and where it runs.
struct ModelOptions {
  std::string path, checkpoint, precision = "fp32";
  std::vector<std::string> attention;
  ComputeOptions compute;
};

/// The argument `run`, --checkpoint and --set.
void add_model_options(CLI::App& command, ModelOptions& options);

/// --precision, --device and --threads, which help shows after the command's own.
void add_placement_options(CLI::App& command, ModelOptions& options);

infer::LoadedModel load(const ModelOptions& options);

}  // namespace performer::cli
