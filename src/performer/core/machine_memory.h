#pragma once

#include <cstdint>

namespace performer {

/// Bytes that a process here can have at most: memory and swap, or what the control group allows
/// if that is less. INT64_MAX where the system does not say.
std::int64_t machine_memory();

}  // namespace performer
