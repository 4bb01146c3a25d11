#include "performer/cli/bounds.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <optional>
#include <string>
#include <system_error>

namespace performer::cli {
namespace {

template <class Number>
std::optional<Number> parsed(const std::string& text) {
  Number number{};
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || rest != end) return {};
  return number;
}

}  // namespace

CLI::Option* bounded(CLI::Option* option, std::int64_t least, std::int64_t most) {
  return option->transform(CLI::Validator(
      [least, most](std::string& text) {
        const auto number = parsed<std::int64_t>(text);
        if (!number || *number < least || *number > most) {
          return fmt::format("must be a whole number from {} to {}, got {}", least, most, text);
        }
        text = std::to_string(*number);  // 010 is ten, not an octal eight
        return std::string();
      },
      ""));
}

CLI::Option* bounded(CLI::Option* option, const Interval& interval) {
  return option->check(CLI::Validator(
      [interval](std::string& text) {
        const auto number = parsed<double>(text);
        const bool inside = number && std::isfinite(*number) && *number <= interval.most &&
                            (interval.above ? *number > interval.least : *number >= interval.least);
        if (inside) return std::string();
        return fmt::format("must be a number {} {} {} {}, got {}",
                           interval.above ? "above" : "from", interval.least,
                           interval.above ? "up to" : "to", interval.most, text);
      },
      ""));
}

}  // namespace performer::cli
