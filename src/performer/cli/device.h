#pragma once

#include <c10/core/Device.h>

#include <string>

namespace performer::cli {

/// "cpu", "cuda", "cuda:1", or "auto": CUDA where there is a GPU. A device that is absent is an
/// error, never another one in its place.
c10::Device parse_device(const std::string& name);

}  // namespace performer::cli
