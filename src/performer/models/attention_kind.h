#pragma once

#include <string>
#include <vector>

namespace performer::models {

/// Every kind of attention a layer may have.
inline const std::vector<std::string>& attention_kinds() {
  static const std::vector<std::string> kinds{"favor", "exact",    "linear", "linformer",
                                              "lsh",   "identity", "mean"};
  return kinds;
}

}  // namespace performer::models
