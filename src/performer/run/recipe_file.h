#pragma once

#include <string>

#include "performer/core/config.h"

namespace performer::run {

/// The values of a recipe's file, over those of the file that its key `base` names:
///   base = "softmax.toml"        # beside this file; only what differs stands here
/// which may have a base itself. Throws Error (kUsage) with file and line for a base that is not
/// there, that comes back to a file before it, or is too far away.
ConfigTree read_recipe_file(const std::string& path);

}  // namespace performer::run
