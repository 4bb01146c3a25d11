#pragma once

#include "performer/report/markup.h"

namespace performer::report {

/// What every page brings with it.
Markup page_style();
Markup page_script();

/// "sha256-…", of page_script() as content policies name it.
std::string page_script_hash();

}  // namespace performer::report
