#pragma once

#include <c10/util/Exception.h>

#include <functional>
#include <string>

namespace performer::testing {

/// The text of the error that `call` raises, without a backtrace; "no error" when it raises none.
inline std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "no error";
}

}  // namespace performer::testing
