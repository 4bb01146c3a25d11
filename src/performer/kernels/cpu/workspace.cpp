#include "performer/kernels/cpu/workspace.h"

#include <cstdlib>
#include <memory>
#include <new>

namespace performer::kernels {
namespace {

constexpr std::size_t kLine = 64;

struct Free {
  void operator()(void* p) const { std::free(p); }
};

class Buffer {
 public:
  void* at_least(std::size_t bytes) {
    if (bytes > size_) {
      memory_.reset();
      size_ = 0;
      memory_.reset(std::aligned_alloc(kLine, (bytes + kLine - 1) / kLine * kLine));
      if (!memory_) throw std::bad_alloc();
      size_ = bytes;
    }
    return memory_.get();
  }

 private:
  std::unique_ptr<void, Free> memory_;
  std::size_t size_ = 0;
};

}  // namespace

void* thread_workspace(std::size_t bytes) {
  thread_local Buffer buffer;
  return buffer.at_least(bytes);
}

void* call_workspace(std::size_t bytes) {
  thread_local Buffer buffer;
  return buffer.at_least(bytes);
}

}  // namespace performer::kernels
