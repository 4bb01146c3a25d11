#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "performer/kernels/cuda/kernels.h"
#include "performer/kernels/fingerprint.h"

namespace performer::kernels::cuda {

/// A contiguous parameter on the device.
struct Words {
  const void* data = nullptr;  // null: absent
  std::int64_t count = 0;
  bool wide = false;  // float64, else float32
};

/// What kernels/fingerprint.h defines, from `seed`, in one launch.
struct FingerprintJob {
  Words tensors[kFingerprintTensors];
  std::uint64_t seed = 0;
};
cudaError_t fingerprint(const FingerprintJob& job, std::int64_t* out, const Device& device,
                        cudaStream_t stream);

}  // namespace performer::kernels::cuda
