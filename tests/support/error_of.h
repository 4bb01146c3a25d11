#pragma once

#include <functional>

#include "performer/core/error.h"

namespace performer::testing {

/// The Error that `call` raises; kOk and "no error" when it raises none.
inline Error error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  return {ExitCode::kOk, "no error"};
}

}  // namespace performer::testing
