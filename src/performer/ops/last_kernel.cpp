#include "performer/ops/last_kernel.h"

#include <torch/library.h>

#include <utility>

namespace performer {
namespace {

struct LastCall {
  std::string kernel;
  bool composed = false;
};

thread_local LastCall last_call;

}  // namespace

std::string last_kernel() { return last_call.kernel; }

bool last_call_composed() { return last_call.composed; }

void set_last_kernel(std::string name) { last_call = {std::move(name), false}; }

void set_last_composed() { last_call = {"composed", true}; }

TORCH_LIBRARY_FRAGMENT(performer, m) { m.def("last_kernel() -> str", &last_kernel); }

}  // namespace performer
