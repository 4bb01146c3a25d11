#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>
