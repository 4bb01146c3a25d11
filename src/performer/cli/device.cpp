#include "performer/cli/device.h"

#include <ATen/Context.h>

#include "performer/core/error.h"

namespace performer::cli {

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

}  // namespace performer::cli
