#pragma once

#include <stdexcept>

#define TORCH_CHECK(condition, ...) \
  if (!(condition)) throw std::logic_error(#condition)
