#pragma once

#include <cstdint>
#include <string>

namespace performer::report {

/// How often `part` stands in `text`.
inline std::int64_t count(const std::string& text, const std::string& part) {
  std::int64_t found = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

}  // namespace performer::report
