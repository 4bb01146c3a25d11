#include "performer/fit/fit.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/variable.h>

#include <cmath>

#include "performer/core/error.h"
#include "performer/fit/attention_divergence.h"
#include "performer/fit/calibrate.h"
#include "performer/models/favor_core.h"
#include "performer/ops/projection/grid.h"
#include "performer/run/tensor_file.h"
#include "performer/train/optimizer.h"

namespace performer::fit {
namespace {

constexpr double kOutputShare = 4;  // of the output in the loss of the model as a whole

run::NamedTensors tensors_of(models::FittedFeaturesImpl& features) {
  run::NamedTensors tensors;
  for (auto& buffer : features.named_buffers()) tensors.emplace_back(buffer.key(), buffer.value());
  return tensors;
}

// [B, L, 1] of real tokens.
Tensor real_tokens(const models::ModelInput& input, const Tensor& like) {
  return input.key_mask.unsqueeze(-1).to(like.scalar_type());
}

// |estimate - exact|^2 / |exact|^2 over real tokens.
Tensor relative_error(const Tensor& exact, const Tensor& estimate, const Tensor& real) {
  return ((estimate - exact) * real).square().sum() / (exact * real).square().sum();
}

// 1 - cosine of the means over real tokens, the mean over rows.
Tensor distance_of_means(const Tensor& exact, const Tensor& estimate, const Tensor& real) {
  const auto mean = [&](const Tensor& hidden) { return (hidden * real).sum(1) / real.sum(1); };
  return (1 - at::cosine_similarity(mean(exact), mean(estimate), -1)).mean();
}

// KL of the next token's distributions, the mean over real tokens.
Tensor divergence_of_logits(const Tensor& exact, const Tensor& estimate, const Tensor& real) {
  const Tensor log_p = exact.log_softmax(-1), log_q = estimate.log_softmax(-1);
  return ((log_p.exp() * (log_p - log_q)).sum(-1, /*keepdim=*/true) * real).sum() / real.sum();
}

run::OptimizerConfig plain_adam() {
  run::OptimizerConfig config;
  config.kind = "adam";
  config.beta1 = 0.9, config.beta2 = 0.999, config.eps = 1e-8;
  config.weight_decay = 0;
  return config;
}

}  // namespace

Fit::Fit(models::Transformer exact, models::Transformer converted, const Samples& samples,
         const FitOptions& options)
    : exact_(std::move(exact)),
      converted_(std::move(converted)),
      samples_(samples),
      options_(options) {
  exact_->eval(), converted_->eval();
  for (std::int64_t i = 0; i < converted_->config().layers; ++i) {
    auto* core = dynamic_cast<models::FavorCore*>(&converted_->block(i).core());
    if (core != nullptr && !core->fitted().is_empty()) layers_.push_back({i, core->fitted()});
  }
  TORCH_CHECK(!layers_.empty(), "fit: no layer of the converted model has fitted features");
}

void Fit::calibrate() {
  const at::NoGradGuard no_grad;
  std::vector<Moments> moments(static_cast<std::size_t>(converted_->config().layers));
  for (std::int64_t i = 0; i < options_.calibration; ++i) {
    const auto input = samples_.batch(batches_++, options_.rows, device());
    exact_->all_hidden(input, [&](std::int64_t layer, const models::Heads& heads) {
      moments[static_cast<std::size_t>(layer)].add(heads, input.key_mask,
                                                   layers_.front().features->scale());
    });
    if (options_.progress) options_.progress({"calibrate", i + 1, options_.calibration, 0});
  }
  for (auto& layer : layers_) {
    fit::calibrate(*layer.features, moments[static_cast<std::size_t>(layer.number)]);
  }
}

Tensor Fit::attention_loss(const models::ModelInput& input) {
  std::vector<models::Heads> heads(static_cast<std::size_t>(exact_->config().layers));
  {
    const at::NoGradGuard no_grad;
    exact_->all_hidden(input, [&](std::int64_t layer, const models::Heads& h) {
      heads[static_cast<std::size_t>(layer)] = {h.q.to(at::kFloat), h.k.to(at::kFloat), {}};
    });
  }
  const auto& config = converted_->config();
  const Sight sight(input.key_mask, input.tokens.sizes(), config.causal, config.attention.near);
  Tensor loss;
  for (auto& layer : layers_) {
    const Tensor own =
        attention_divergence(*layer.features, heads[static_cast<std::size_t>(layer.number)], sight);
    loss = loss.defined() ? loss + own : own;
  }
  return loss;
}

Tensor Fit::model_loss(const models::ModelInput& input) {
  std::vector<Tensor> exact;
  {
    const at::NoGradGuard no_grad;
    exact = exact_->all_hidden(input);
  }
  const auto estimate = converted_->all_hidden(input);
  const Tensor real = real_tokens(input, exact.back());
  Tensor loss;
  for (std::size_t i = 1; i < exact.size(); ++i) {
    const Tensor own = relative_error(exact[i], estimate[i], real);
    loss = loss.defined() ? loss + own : own;
  }
  const bool predicts = converted_->config().head == "lm" && converted_->config().causal;
  if (!predicts)
    return loss + kOutputShare * distance_of_means(exact.back(), estimate.back(), real);
  Tensor logits;
  {
    const at::NoGradGuard no_grad;
    logits = exact_->logits(exact.back());
  }
  return loss + divergence_of_logits(logits, converted_->logits(estimate.back()), real);
}

// Adam with a rate that falls to 0.
void Fit::descend(const Stage& stage, const Loss& loss) {
  run::NamedTensors tensors;
  for (auto& layer : layers_) {
    for (auto& tensor : tensors_of(*layer.features)) tensors.push_back(std::move(tensor));
  }
  if (stage.weights) {
    for (auto& item : converted_->named_parameters())
      tensors.emplace_back(item.key(), item.value());
  }
  for (auto& parameter : converted_->parameters()) parameter.set_requires_grad(stage.weights);
  std::vector<Tensor> targets;
  for (auto& [name, tensor] : tensors) targets.push_back(tensor.set_requires_grad(true));
  train::Optimizer optimizer(plain_adam(), tensors);
  const Tensor one = at::ones({}, targets.front().options().requires_grad(false));
  for (std::int64_t step = 0; step < stage.steps; ++step) {
    const auto input = samples_.batch(batches_++, options_.rows, device());
    const Tensor value = loss(input);
    auto gradients = torch::autograd::grad({value}, targets, {}, std::nullopt, false, true);
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      if (!gradients[i].defined()) gradients[i] = at::zeros_like(targets[i]);
    }
    const double left = 1 - static_cast<double>(step) / static_cast<double>(stage.steps);
    const double number = value.item<double>();
    if (!std::isfinite(number)) {
      fail(ExitCode::kDiverged, "{}: the loss is {} after {} steps; take a lower rate", stage.name,
           number, step);
    }
    optimizer.step(gradients, stage.rate * left, one, at::zeros_like(one));
    if (options_.progress) options_.progress({stage.name, step + 1, stage.steps, number});
  }
  for (auto& tensor : targets) tensor.set_requires_grad(false);
}

void Fit::fit_attention() {
  descend({"attention", options_.attention_steps, options_.attention_rate, false},
          [&](const auto& input) { return attention_loss(input); });
}

void Fit::fit_model() {
  const auto loss = [&](const models::ModelInput& input) { return model_loss(input); };
  descend({"model", options_.model_steps, options_.model_rate, false}, loss);
  if (options_.weight_steps == 0) return;
  descend({"weights", options_.weight_steps, options_.weight_rate, true}, loss);
}

void Fit::round() {
  const at::NoGradGuard no_grad;
  for (auto& layer : layers_) {
    for (Tensor* rows : {&layer.features->query_weight, &layer.features->key_weight}) {
      rows->copy_(round_to_grid(rows->to(at::kDouble)));
    }
  }
}

}  // namespace performer::fit
