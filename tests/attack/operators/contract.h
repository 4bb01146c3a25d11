#pragma once

#include <string>

#include "tests/attack/operators/operator_call.h"

namespace performer::testing {

/// Why favor_attention had to refuse these arguments, or what its results are not; empty: nothing.
/// The contract of favor/attention.h once more, in a few lines of its own.
std::string broken_contract(const OperatorCall& call, const std::vector<at::IValue>& results);

}  // namespace performer::testing
