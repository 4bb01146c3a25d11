#include "performer/ops/last_kernel.h"

#include <torch/library.h>

#include <utility>

namespace performer {
namespace {

thread_local std::string last_kernel_name;

}  // namespace

std::string last_kernel() { return last_kernel_name; }

void set_last_kernel(std::string name) { last_kernel_name = std::move(name); }

TORCH_LIBRARY_FRAGMENT(performer, m) { m.def("last_kernel() -> str", &last_kernel); }

}  // namespace performer
