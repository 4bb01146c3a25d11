#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/stack.h>

#include <cstddef>
#include <optional>

#include "tests/support/argument_variations.h"

namespace performer::testing {

/// One argument of a right call.
struct ArgumentOf {
  const c10::FunctionSchema& schema;
  const torch::jit::Stack& good;  // the right call
  std::size_t index;

  const std::string& name() const { return schema.arguments()[index].name(); }
  const c10::IValue& value() const { return good[index]; }
  /// The argument of this call that has this name; None where there is none.
  c10::IValue other(const std::string& other_name) const;
};

/// What another shape, dtype or absence of the argument means, in the form it has in the right
/// call: heads that share a parameter, written out; the numbers in the usual dtype; the default.
/// The results must be the same. Nothing where no such meaning exists for any operator.
std::optional<c10::IValue> plain_form(const ArgumentOf& argument, const c10::IValue& changed);

/// Whether other numbers leave the call right by the nature of the argument.
bool is_right_value(const ArgumentOf& argument, const Variation& variation);

/// Whether float32 arithmetic can be held against float64: not at NaN, infinity and near the ends
/// of the range.
bool is_moderate(const Variation& variation);

}  // namespace performer::testing
