#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace performer {

/// Of `names` the one nearest to `name`, or empty when none is near: what a misspelt word most
/// likely meant. Dotted names are near when their last parts are ("layers" is meant to be
/// "model.layers" as much as "model.layer" is). Letters that changed places count once.
std::string nearest_name(std::string_view name, const std::vector<std::string>& names);

/// "; did you mean NAME?", or nothing where no name is near.
std::string did_you_mean(std::string_view name, const std::vector<std::string>& names);

}  // namespace performer
