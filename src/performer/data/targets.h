#pragma once

#include <cstdint>

namespace performer::data {

/// Target of a position without loss.
inline constexpr std::int64_t kIgnore = -100;

}  // namespace performer::data
