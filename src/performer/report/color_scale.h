#pragma once

#include <cstdint>
#include <string>

namespace performer::report {

enum class Scale : std::uint8_t {
  kSequential,  // from dark violet to yellow: of equal steps for every kind of eye
  kDiverging,   // blue, nearly white in the middle, red
};

inline constexpr std::int64_t kLevels = 64;

/// "#rrggbb" of a level, 0 to kLevels - 1.
std::string level_color(Scale scale, std::int64_t level);

/// Whether dark text reads better on it than light text.
bool is_light(Scale scale, std::int64_t level);

}  // namespace performer::report
