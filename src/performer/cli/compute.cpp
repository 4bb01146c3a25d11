#include "performer/cli/compute.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include "performer/cli/bounds.h"
#include "performer/core/error.h"

namespace performer::cli {
namespace {

constexpr std::int64_t kMostThreads = 1024;

c10::Device parse_device(const std::string& name) {
  if (name == "auto") return parse_device(at::hasCUDA() ? "cuda" : "cpu");
  if (name != "cpu" && name.rfind("cuda", 0) != 0) {
    fail(ExitCode::kUsage, "--device: must be cpu, cuda, cuda:N or auto, got {}", name);
  }
  if (name != "cpu" && !at::hasCUDA()) {
    fail(ExitCode::kUsage, "--device {}: this torch sees no CUDA device; take --device cpu", name);
  }
  try {
    return c10::Device(name == "cuda" ? "cuda:0" : name);
  } catch (const c10::Error&) {
    fail(ExitCode::kUsage, "--device: must be cpu, cuda, cuda:N or auto, got {}", name);
  }
}

}  // namespace

void add_compute_options(CLI::App& command, ComputeOptions& options) {
  command.add_option("--device", options.device, "cpu, cuda, cuda:1 or auto")
      ->capture_default_str();
  bounded(command.add_option("--threads", options.threads,
                             "Processor threads of the arithmetic (default: one a core)"),
          1, kMostThreads);
}

c10::Device prepare(const ComputeOptions& options) {
  if (options.threads > 0) at::set_num_threads(static_cast<int>(options.threads));
  return parse_device(options.device);
}

}  // namespace performer::cli
