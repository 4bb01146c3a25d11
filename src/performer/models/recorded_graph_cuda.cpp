#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "performer/models/recorded_graph.h"

namespace performer::models {
namespace {

class CudaGraph : public RecordedGraph {
 public:
  CudaGraph(at::Device device, const std::function<void()>& body) : device_(device) {
    const c10::cuda::CUDAGuard guard(device_);
    c10::cuda::getCurrentCUDAStream().synchronize();
    // The default stream cannot be recorded.
    const c10::cuda::CUDAStreamGuard stream(
        c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device_.index()));
    // Other threads, which may prepare batches, are not kept from allocating.
    graph_.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
    try {
      body();
    } catch (...) {
      abandon();
      throw;
    }
    graph_.capture_end();
  }

  void replay() override {
    const c10::cuda::CUDAGuard guard(device_);
    graph_.replay();
  }

 private:
  // After an error the recording must end all the same; what it holds is of no use.
  void abandon() noexcept {
    try {
      graph_.capture_end();
    } catch (...) {
      static_cast<void>(cudaGetLastError());  // the body's own error says more
    }
  }

  at::Device device_;
  at::cuda::CUDAGraph graph_;
};

}  // namespace

std::unique_ptr<RecordedGraph> record_graph(at::Device device, const std::function<void()>& body) {
  if (!device.is_cuda()) return nullptr;
  return std::make_unique<CudaGraph>(device, body);
}

}  // namespace performer::models
