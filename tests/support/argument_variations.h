#pragma once

#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>

#include <cstdint>
#include <string>
#include <vector>

namespace performer::testing {

enum class Change : std::uint8_t {
  kLayout,  // the numbers of `dense` in other memory: the answer must be that for `dense`
  kShape,   // another size, rank, dtype or device, or nothing at all
  kValue,   // other numbers
};

/// One argument, changed.
struct Variation {
  std::string name;
  Change change;
  c10::IValue value;
  c10::IValue dense{};  // kLayout alone: contiguous, in memory of its own; None: as the right call
};

/// Everything that may go wrong with an argument of this type where `good` is right: each size one
/// less, one more, 1 and 0, other ranks, dtypes, devices, layouts and strides, nothing, NaN and
/// extreme numbers.
std::vector<Variation> variations(const c10::TypePtr& type, const c10::IValue& good);

}  // namespace performer::testing
