#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <memory>

namespace performer::models {

/// Launches on a GPU that were recorded once, to be repeated with one call.
class RecordedGraph {
 public:
  virtual ~RecordedGraph() = default;
  virtual void replay() = 0;  // on the device's current stream; does not wait
};

/// What `body` launches on `device`, recorded instead of run. Tensors that it makes keep their
/// memory as long as the graph lives. Null where there is nothing to record: on the CPU and in
/// builds without CUDA.
std::unique_ptr<RecordedGraph> record_graph(at::Device device, const std::function<void()>& body);

}  // namespace performer::models
