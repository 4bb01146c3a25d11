#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <optional>
#include <string>
#include <vector>

#include "tests/attack/operators/draw.h"
#include "tests/support/op_cases.h"

namespace performer::testing {

/// A call of a registered operator, its arguments in the schema's order.
struct OperatorCall {
  c10::OperatorHandle op;
  torch::jit::Stack arguments;
  std::optional<OpCase> problem{};  // of favor_attention: what the definition is asked
  std::vector<Tensor> expected{};   // of merge_near_states: the state of all tokens at once

  const std::string& name() const { return op.schema().name(); }
  const at::IValue& value(const char* argument) const {
    return arguments[static_cast<std::size_t>(*op.schema().argumentIndexWithName(argument))];
  }
  /// Undefined where the argument is not given.
  Tensor tensor(const char* argument) const {
    return value(argument).isTensor() ? value(argument).toTensor() : Tensor();
  }
  std::optional<double> number(const char* argument) const {
    return value(argument).toOptional<double>();
  }
  std::vector<at::IValue> run() const {
    torch::jit::Stack stack = arguments;
    op.callBoxed(&stack);
    return stack;
  }
};

/// All operators of this library, by name.
std::vector<c10::OperatorHandle> registered_operators();

/// A call that the operator must accept. Throws for an operator that it does not know.
OperatorCall valid_call(const c10::OperatorHandle& op, Draw& draw);

/// Changes one argument within its type: another shape, dtype, layout, device or value, nothing at
/// all, an unknown word, a number beyond all bounds. Returns what was done, for messages.
std::string mutate(OperatorCall& call, Draw& draw);

}  // namespace performer::testing
