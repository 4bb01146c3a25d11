#include "performer/train/optimizer.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace performer::train {

Optimizer::Optimizer(const run::OptimizerConfig& config, const run::NamedTensors& weights)
    : config_(config), weights_(weights), groups_(2) {
  means_.reserve(weights.size());
  squares_.reserve(weights.size());
  if (!weights.empty()) steps_ = at::zeros({}, weights.front().second.options());
  groups_[0].decay = config.weight_decay;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const auto& weight = weights[i].second;
    means_.push_back(at::zeros_like(weight));
    squares_.push_back(at::zeros_like(weight));
    auto& group = groups_[weight.dim() >= 2 || config.decay_vectors ? 0 : 1];
    group.members.push_back(i);
    group.weights.push_back(weight);
    group.means.push_back(means_[i]);
    group.squares.push_back(squares_[i]);
    group.steps.push_back(steps_);
  }
}

void Optimizer::step(const std::vector<Tensor>& gradients, double rate, const Tensor& divisor,
                     const Tensor& skip) {
  at::NoGradGuard no_grad;
  steps_.add_(1);
  for (auto& group : groups_) {
    if (group.members.empty()) continue;
    std::vector<Tensor> own(group.members.size());
    std::transform(group.members.begin(), group.members.end(), own.begin(),
                   [&](std::size_t i) { return gradients[i]; });
    if (config_.kind == "adamw") {
      at::_fused_adamw_(group.weights, own, group.means, group.squares, {}, group.steps, rate,
                        config_.beta1, config_.beta2, group.decay, config_.eps,
                        /*amsgrad=*/false, /*maximize=*/false, divisor, skip);
    } else {
      at::_fused_adam_(group.weights, own, group.means, group.squares, {}, group.steps, rate,
                       config_.beta1, config_.beta2, group.decay, config_.eps,
                       /*amsgrad=*/false, /*maximize=*/false, divisor, skip);
    }
  }
  steps_.sub_(skip);  // the fused pass leaves a skipped step without effect, so its count too
}

run::NamedTensors Optimizer::state() const {
  run::NamedTensors state;
  state.reserve(2 * weights_.size() + 1);
  for (std::size_t i = 0; i < weights_.size(); ++i) {
    state.emplace_back("mean." + weights_[i].first, means_[i]);
    state.emplace_back("square." + weights_[i].first, squares_[i]);
  }
  if (steps_.defined()) state.emplace_back("steps", steps_);
  return state;
}

}  // namespace performer::train
