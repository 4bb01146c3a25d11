#pragma once

#include <c10/core/Device.h>

#include <CLI/App.hpp>
#include <cstdint>
#include <string>

namespace performer::cli {

/// What every command that computes has: --device and --threads.
struct ComputeOptions {
  std::string device = "auto";
  std::int64_t threads = 0;  // 0: as many as torch takes
};

void add_compute_options(CLI::App& command, ComputeOptions& options);

/// Sets the number of threads and returns the device: "cpu", "cuda", "cuda:1", or "auto": CUDA
/// where there is a GPU. A device that is absent is an error, never another one in its place.
c10::Device prepare(const ComputeOptions& options);

}  // namespace performer::cli
