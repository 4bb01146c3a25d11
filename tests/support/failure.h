#pragma once

#include <functional>
#include <string>

#include "performer/core/error.h"

namespace performer::testing {

struct Failure {
  ExitCode code = ExitCode::kOk;
  std::string message;
};

/// The Error that `call` throws; kOk and "no error" where it throws none.
inline Failure failure_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return {error.code(), error.what()};
  }
  return {ExitCode::kOk, "no error"};
}

}  // namespace performer::testing
