#include "performer/fit/fit.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/variable.h>

#include <cmath>
#include <utility>

#include "performer/core/error.h"
#include "performer/core/log.h"
#include "performer/fit/attention_divergence.h"
#include "performer/fit/calibrate.h"
#include "performer/fit/coordinates.h"
#include "performer/models/favor_core.h"
#include "performer/ops/projection/grid.h"
#include "performer/run/tensor_file.h"
#include "performer/train/optimizer.h"

namespace performer::fit {
namespace {

constexpr double kOutputShare = 4;  // of the output in the loss of the model as a whole

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

// While one lives, products of matrices in float32 may round their factors to 16 bits: twice as fast
// on processors with AVX-512, where the way of float32 ends at AVX2 on some. Fitting averages such
// errors out; they are far below those of the features.
class FastProducts {
 public:
  explicit FastProducts(bool fast = true) : before_(at::globalContext().float32MatmulPrecision()) {
    if (fast) at::globalContext().setFloat32MatmulPrecision("medium");
  }
  ~FastProducts() { at::globalContext().setFloat32MatmulPrecision(name_of(before_)); }
  FastProducts(const FastProducts&) = delete;
  FastProducts& operator=(const FastProducts&) = delete;

 private:
  static const char* name_of(at::Float32MatmulPrecision precision) {
    switch (precision) {
      case at::Float32MatmulPrecision::HIGHEST:
        return "highest";
      case at::Float32MatmulPrecision::HIGH:
        return "high";
      case at::Float32MatmulPrecision::MEDIUM:
        return "medium";
    }
    return "highest";
  }
  at::Float32MatmulPrecision before_;
};

run::OptimizerConfig plain_adam() {
  run::OptimizerConfig config;
  config.kind = "adam";
  config.beta1 = 0.9, config.beta2 = 0.99, config.eps = 1e-8;
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
    const auto& own = moments[static_cast<std::size_t>(layer.number)];
    fit::calibrate(*layer.features, own);
    layer.coordinates.emplace(layer.features, own);
  }
}

Tensor Fit::attention_loss(const models::ModelInput& input) {
  std::vector<models::Heads> heads(static_cast<std::size_t>(exact_->config().layers));
  {
    const at::NoGradGuard no_grad;
    const FastProducts fast;
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

run::NamedTensors Fit::fitted_by(const Stage& stage) {
  run::NamedTensors tensors;
  for (const auto& layer : layers_) {
    for (const auto& [name, change] : layer.coordinates->changes()) {
      tensors.emplace_back(fmt::format("features.{}.{}", layer.number, name), change);
    }
  }
  if (stage.weights) {
    for (auto& item : converted_->named_parameters())
      tensors.emplace_back(item.key(), item.value());
  }
  return tensors;
}

// A later stage is on disk, and has all that this one left.
bool Fit::finished_before(const Stage& stage) const {
  return options_.unfinished != nullptr && options_.unfinished->place() &&
         options_.unfinished->place()->stage != stage.name;
}

void Fit::keep(const Unfinished::Place& place, const Stage& stage, const run::NamedTensors& state) {
  const bool stop = options_.stop && options_.stop();
  if (options_.unfinished == nullptr) return;
  const auto now = std::chrono::steady_clock::now();
  if (!stop && std::chrono::duration<double>(now - saved_).count() < options_.save_seconds) return;
  options_.unfinished->save(place, state);
  saved_ = std::chrono::steady_clock::now();
  if (!stop) return;
  fail(ExitCode::kPreempted,
       "stopped after step {} of {} of fitting by {}, which is in {}; the same "
       "command goes on",
       place.step, stage.steps, stage.name, options_.unfinished->path().string());
}

// Adam with a rate that falls to 0.
void Fit::descend(const Stage& stage, const Loss& loss) {
  const auto first_batch = std::exchange(batches_, batches_ + stage.steps);
  if (finished_before(stage)) return;
  for (auto& layer : layers_) {
    if (!layer.coordinates) layer.coordinates.emplace(layer.features, Moments());
  }
  for (auto& parameter : converted_->parameters()) parameter.set_requires_grad(stage.weights);
  const auto tensors = fitted_by(stage);
  std::vector<Tensor> targets;
  for (const auto& [name, tensor] : tensors) targets.push_back(tensor.set_requires_grad(true));
  train::Optimizer optimizer(plain_adam(), tensors);
  auto state = optimizer.state();
  state.insert(state.end(), tensors.begin(), tensors.end());
  Unfinished::Place place{stage.name};
  if (options_.unfinished != nullptr && options_.unfinished->place()) {
    place = *options_.unfinished->place();
    options_.unfinished->load(state);
    log_info("{}: goes on after step {} of {} of fitting by {}",
             options_.unfinished->path().string(), place.step, stage.steps, stage.name);
  }
  const Tensor one = at::ones({}, targets.front().options().requires_grad(false));
  while (place.step < stage.steps) {
    const auto input = samples_.batch(first_batch + place.step, options_.rows, device());
    for (auto& layer : layers_) layer.coordinates->apply();
    const FastProducts fast(stage.model);
    const Tensor value = loss(input);
    auto gradients = torch::autograd::grad({value}, targets, {}, std::nullopt, false, true);
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      if (!gradients[i].defined()) gradients[i] = at::zeros_like(targets[i]);
    }
    const double left = 1 - static_cast<double>(place.step) / static_cast<double>(stage.steps);
    const double number = value.item<double>();
    if (!std::isfinite(number)) {
      fail(ExitCode::kDiverged, "{}: the loss is {} after {} steps; take a lower rate", stage.name,
           number, place.step);
    }
    if (place.step == 0) place.first_loss = number;
    optimizer.step(gradients, stage.rate * left, one, at::zeros_like(one));
    ++place.step;
    if (options_.progress) {
      options_.progress({stage.name, place.step, stage.steps, number, place.first_loss});
    }
    keep(place, stage, state);
  }
  for (const auto& tensor : targets) tensor.set_requires_grad(false);
  for (auto& layer : layers_) layer.coordinates->settle();
}

void Fit::fit_attention() {
  descend({"attention", options_.attention_steps, options_.attention_rate, false, false},
          [&](const auto& input) { return attention_loss(input); });
}

void Fit::fit_model() {
  const auto loss = [&](const models::ModelInput& input) { return model_loss(input); };
  descend({"model", options_.model_steps, options_.model_rate, true, false}, loss);
  if (options_.weight_steps == 0) return;
  descend({"weights", options_.weight_steps, options_.weight_rate, true, true}, loss);
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
