#include "performer/models/stepper.h"

#include <ATen/ATen.h>

#include <utility>

#include "performer/ops/last_kernel.h"

namespace performer::models {

Stepper::Stepper(Transformer model, DecodeState state)
    : model_(std::move(model)),
      state_(std::move(state)),
      device_(model_->parameters().front().device()) {}

Tensor Stepper::step(const std::vector<std::int64_t>& tokens) {
  const at::NoGradGuard no_grad;
  const Tensor host = at::tensor(tokens, at::kLong).unsqueeze(1);  // [B, 1]
  if (graph_ == nullptr) return run_eagerly(host);
  TORCH_CHECK(host.sizes() == tokens_.sizes(), "Stepper: needs ", tokens_.size(0), " tokens, got ",
              host.size(0));
  model_->check_length(state_.position + 1);
  tokens_.copy_(host);
  graph_->replay();
  ++state_.position;
  return logits_.to(at::kCPU);
}

Tensor Stepper::run_eagerly(const Tensor& tokens) {
  const Tensor logits = model_->decode(tokens.to(device_), state_);
  kernel_ = last_kernel();
  if (eager_reason_.empty()) record(tokens.size(0));
  return logits.to(at::kCPU);
}

void Stepper::record(std::int64_t batch) {
  if (!device_.is_cuda()) {
    eager_reason_ = "CUDA graphs need a GPU";
  } else if (!model_->recordable()) {
    eager_reason_ = "the state of this attention grows with the length";
  } else if (last_call_composed()) {
    eager_reason_ = "no CUDA kernel serves this attention";
  }
  if (!eager_reason_.empty()) return;
  const auto integers = at::TensorOptions(at::kLong).device(device_);
  state_.index = at::full({1}, state_.position, integers);
  tokens_ = at::zeros({batch, 1}, integers);
  const std::int64_t position = state_.position;
  graph_ = record_graph(device_, [&] { logits_ = model_->decode(tokens_, state_); });
  state_.position = position;  // nothing ran
  if (graph_ == nullptr) eager_reason_ = "this build has no CUDA";
}

void Stepper::keep(const std::vector<std::int64_t>& rows) {
  logits_.reset(), tokens_.reset();
  graph_.reset();
  state_ = state_.reorder(at::tensor(rows, at::kLong).to(device_));
}

}  // namespace performer::models
