#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "performer/data/data_config.h"

namespace performer::data {

/// Paths that a recipe names are looked for beside it, then in the working folder, as which they
/// are left. Says so where one is found beside the recipe. `file_of` tells the file that gives a key
/// (`train`), which may be the recipe's base; empty for what the command line gives: this is of the
/// working folder. kUsage for what is not UTF-8.
void look_beside_recipe(DataConfig& config,
                        const std::function<std::string(std::string_view key)>& file_of);

/// To be called before training: kBadInput, naming the places that were looked at, for training
/// data, and where the run `validates` validation data, that are not there; a warning for the
/// others, which will be missed after the training alone.
void check_named_files(const DataConfig& config, const std::string& recipe, bool validates);

}  // namespace performer::data
