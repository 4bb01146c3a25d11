#pragma once

#include <ATen/core/stack.h>

#include <functional>
#include <ostream>
#include <string>
#include <vector>

namespace performer::testing {

/// A right call of a registered operator, and how far it may be varied.
struct OperatorCase {
  std::string op;                                // without the namespace
  std::string name;                              // of the case, in test names
  std::function<torch::jit::Stack()> arguments;  // the same numbers at each call, new memory
  /// "argument:variation" with extended shell wildcards: changed so, the call is still right, which
  /// the rules for all operators (argument_rules.h) do not say.
  std::vector<std::string> accepted;
  /// The first result must be that of the same call in float64.
  bool has_oracle = false;
};

inline std::ostream& operator<<(std::ostream& out, const OperatorCase& c) {
  return out << c.op << " " << c.name;
}

/// At least one for every operator of the library.
const std::vector<OperatorCase>& operator_cases();

}  // namespace performer::testing
