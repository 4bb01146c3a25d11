#pragma once

#include <cstdint>

namespace performer::cpu {

/// What one call of the probe did.
struct FmaProbe {
  std::int64_t flops = 0;  // a fused multiply-add counts as two
  float sum = 0;           // of all accumulators, so that none can be left out
  const char* isa = "";    // "avx512", "avx2" or "portable"
};

/// `iterations` times one float32 FMA on each of 12 independent vector registers: no memory, and
/// more chains than latency times ports of any current core, so its rate is the core's peak.
FmaProbe fma_probe(std::int64_t iterations);

}  // namespace performer::cpu
