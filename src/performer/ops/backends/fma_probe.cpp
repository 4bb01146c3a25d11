#include <ATen/Parallel.h>
#include <torch/library.h>

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "performer/kernels/cpu/fma_probe.h"

namespace performer {
namespace {

/// FLOPs done, a sum that depends on all of them, and the instruction set. Every thread of torch
/// runs its own probe; the caller's clock makes a rate of it.
std::tuple<std::int64_t, double, std::string> fma_probe_op(std::int64_t iterations) {
  constexpr std::int64_t kMost = std::int64_t{1} << 30;  // some seconds
  TORCH_CHECK(iterations >= 1 && iterations <= kMost, "fma_probe: iterations must be in 1 ... ",
              kMost, ", got ", iterations);
  std::vector<cpu::FmaProbe> probes(at::get_num_threads());
  at::parallel_for(0, static_cast<std::int64_t>(probes.size()), 1,
                   [&](std::int64_t begin, std::int64_t end) {
                     for (auto t = begin; t < end; ++t) probes[t] = cpu::fma_probe(iterations);
                   });
  std::int64_t flops = 0;
  double sum = 0;
  for (const auto& probe : probes) {
    flops += probe.flops;
    sum += probe.sum;
  }
  return {flops, sum, probes.front().isa};
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(performer, m) {
  m.def("fma_probe(int iterations) -> (int, float, str)", &fma_probe_op);
}

}  // namespace performer
