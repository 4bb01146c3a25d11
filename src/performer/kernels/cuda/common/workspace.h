#pragma once

#include <cstddef>
#include <cstdint>

namespace performer::kernels::cuda {

/// Cuts device memory into arrays on 256 bytes; without memory it only counts.
class Workspace {
 public:
  explicit Workspace(void* memory) : memory_(static_cast<char*>(memory)) {}

  template <class T>
  T* take(std::int64_t count) {
    constexpr std::size_t kAlignment = 256;
    auto* array = memory_ == nullptr ? nullptr : reinterpret_cast<T*>(memory_ + bytes_);
    const auto bytes = static_cast<std::size_t>(count) * sizeof(T);
    bytes_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return array;
  }
  std::size_t bytes() const { return bytes_; }

 private:
  char* memory_;
  std::size_t bytes_ = 0;
};

}  // namespace performer::kernels::cuda
