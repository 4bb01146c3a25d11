#pragma once

#include <cstdlib>
#include <string>

namespace performer::testing {

/// PERFORMER_CPU_KERNELS for the lifetime of this object.
class CpuKernels {
 public:
  explicit CpuKernels(const char* value) {
    const char* before = std::getenv(kName);
    had_ = before != nullptr;
    if (had_) before_ = before;
    setenv(kName, value, 1);
  }
  ~CpuKernels() { had_ ? setenv(kName, before_.c_str(), 1) : unsetenv(kName); }
  CpuKernels(const CpuKernels&) = delete;
  CpuKernels& operator=(const CpuKernels&) = delete;

 private:
  static constexpr const char* kName = "PERFORMER_CPU_KERNELS";
  bool had_ = false;
  std::string before_;
};

}  // namespace performer::testing
