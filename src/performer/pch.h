#pragma once

// The one precompiled header of library and tests: torch's headers cost seconds per file.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>
