#pragma once

#include <string>

namespace performer {

/// Which implementation the last operator call of this thread ran: "composed", or a kernel's path
/// such as "cpu/avx512/fp32/positive/causal". Empty before the first call.
std::string last_kernel();

/// Whether that call was composed of torch's operators, as no kernel serves such calls.
bool last_call_composed();

/// Set by each implementation, so that nothing falls back in silence.
void set_last_kernel(std::string name);
void set_last_composed();

}  // namespace performer
