#pragma once

#include <cstddef>
#include <cstdint>

namespace performer::kernels {

/// A buffer of this thread, aligned to cache lines and kept between calls; its contents are lost
/// when more is asked for.
void* thread_workspace(std::size_t bytes);

/// The same, for what the threads of one call share. Owned by the calling thread.
void* call_workspace(std::size_t bytes);

}  // namespace performer::kernels
