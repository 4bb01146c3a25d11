#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "performer/models/recorded_graph.h"
#include "performer/models/transformer.h"

namespace performer::models {

/// The steps of B streams after their prompt, one token each at a time. On CUDA the first step runs
/// eagerly and is then recorded as a graph, which the others replay: one launch a token. Models
/// that cannot be recorded run eagerly; eager_reason() says why.
class Stepper {
 public:
  /// `state`: B sequences, the prompt read.
  Stepper(Transformer model, DecodeState state);

  /// tokens [B], one of each sequence;  returns the logits after them, [B, V] on the CPU.
  Tensor step(const std::vector<std::int64_t>& tokens);

  /// Goes on with the sequences `rows` alone, in that order.
  void keep(const std::vector<std::int64_t>& rows);

  bool recorded() const { return graph_ != nullptr; }
  const std::string& eager_reason() const { return eager_reason_; }  // empty: recorded, or no step
  const std::string& kernel() const { return kernel_; }  // of the last layer's attention

 private:
  Tensor run_eagerly(const Tensor& tokens);
  void record(std::int64_t batch);

  Transformer model_;
  DecodeState state_;
  at::Device device_;
  Tensor tokens_, logits_;                // of the graph: [B, 1], [B, V]
  std::unique_ptr<RecordedGraph> graph_;  // gone before they are
  std::string eager_reason_, kernel_;
};

}  // namespace performer::models
