#include "performer/cli/model_options.h"

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include "performer/run/precision.h"

namespace performer::cli {

void add_model_options(CLI::App& command, ModelOptions& options) {
  command.add_option("run", options.path, "Run folder or checkpoint folder")->required();
  command.add_option("--checkpoint", options.checkpoint,
                     "Of a run: best, latest or a step (default: best, without one latest)");
  command
      .add_option("--set", options.attention,
                  "Another attention for the same weights: --set model.attention.kind=favor")
      ->type_name("KEY=VALUE")
      ->expected(1)
      ->take_all();
}

void add_placement_options(CLI::App& command, ModelOptions& options) {
  command.add_option("--precision", options.precision, "fp32, bf16 or fp16")->capture_default_str();
  add_compute_options(command, options.compute);
}

infer::LoadedModel load(const ModelOptions& options) {
  infer::LoadOptions how;
  how.checkpoint = options.checkpoint;
  how.attention = options.attention;
  how.device = prepare(options.compute);
  how.precision = run::parse_precision(options.precision);
  return infer::load_model(options.path, how);
}

}  // namespace performer::cli
