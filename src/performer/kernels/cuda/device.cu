#include <map>
#include <mutex>

#include "performer/kernels/cuda/kernels.h"

namespace performer::kernels::cuda {
namespace {

cudaError_t read_device(int index, Device& device) {
  device.index = index;
  cudaError_t error =
      cudaDeviceGetAttribute(&device.major, cudaDevAttrComputeCapabilityMajor, index);
  if (error != cudaSuccess) return error;
  error = cudaDeviceGetAttribute(&device.minor, cudaDevAttrComputeCapabilityMinor, index);
  if (error != cudaSuccess) return error;
  return cudaDeviceGetAttribute(&device.multiprocessors, cudaDevAttrMultiProcessorCount, index);
}

}  // namespace

cudaError_t current_device(Device& device) {
  static std::mutex mutex;
  static std::map<int, Device> devices;
  int index = 0;
  if (const cudaError_t error = cudaGetDevice(&index); error != cudaSuccess) return error;
  const std::lock_guard<std::mutex> lock(mutex);
  if (const auto found = devices.find(index); found != devices.end()) {
    device = found->second;
    return cudaSuccess;
  }
  const cudaError_t error = read_device(index, device);
  if (error == cudaSuccess) devices.emplace(index, device);
  return error;
}

}  // namespace performer::kernels::cuda
