#pragma once

#include <string>
#include <string_view>

#include "performer/report/markup.h"

namespace performer::report {

/// A PNG file inside the page, at its own size or the page's width. `words`: what it shows, for
/// those who do not see it.
Markup picture(std::string_view png, const std::string& words);

}  // namespace performer::report
