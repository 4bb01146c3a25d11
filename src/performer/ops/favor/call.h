#pragma once

#include "performer/ops/favor/arguments.h"
#include "performer/ops/favor/attention.h"

namespace performer {

/// The operator's arguments for the C++ functions' own.
FavorArgs favor_args(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& W,
                     const FavorOptions& options);

}  // namespace performer
