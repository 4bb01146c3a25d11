#include <cstdint>

#include "tests/fuzz/targets.h"

/// The entry that libFuzzer calls, for the target that the build names.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  performer::fuzz::PERFORMER_FUZZ_TARGET(std::as_bytes(std::span(data, size)));
  return 0;
}
