#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace performer::testing {

struct Casualty {
  std::uint64_t seed;
  std::string how;  // "killed by signal 11", "a hang", "wrong: ..."
};

/// Runs `attempt` for the seeds first ... first + count - 1 in a process of its own, a new one
/// after each that dies of it, and returns those that died, hung (10 s of processor time) or that
/// `attempt` complains of by a text that is not empty. What a sanitizer says goes to standard
/// error.
std::vector<Casualty> casualties_of(std::uint64_t first, std::uint64_t count,
                                    const std::function<std::string(std::uint64_t)>& attempt);

}  // namespace performer::testing
