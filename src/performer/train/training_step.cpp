#include "performer/train/training_step.h"

#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "performer/core/random.h"
#include "performer/infer/loss.h"

namespace performer::train {
namespace {

constexpr double kFirstLossScale = 65536;
constexpr double kGrowth = 2, kBackoff = 0.5;
constexpr std::int64_t kGrowthInterval = 2000;  // good steps before the loss scale doubles

// One key for each batch of each step.
std::uint64_t dropout_key(std::int64_t seed, std::int64_t step, std::uint32_t part) {
  const auto low = [](std::int64_t value) { return static_cast<std::uint32_t>(value); };
  const auto bits = philox4x32({low(step), low(step >> 32), part, 0}, {low(seed), low(seed >> 32)});
  return (static_cast<std::uint64_t>(bits[0]) << 32) | bits[1];
}

}  // namespace

bool StepReport::finite() const { return std::isfinite(loss()) && std::isfinite(gradient_norm); }

bool StepReport::overflowed() const {
  return std::isfinite(loss()) && !std::isfinite(gradient_norm) && loss_scale > 1;
}

PendingReport::PendingReport(StepReport known, const Tensor& numbers) : report_(std::move(known)) {
  if (numbers.is_cpu()) {
    numbers_ = numbers;
    return;
  }
  numbers_ = at::empty(numbers.sizes(), numbers.options().device(at::kCPU).pinned_memory(true));
  numbers_.copy_(numbers, /*non_blocking=*/true);
  ready_.emplace(numbers.device().type());
  ready_->record(c10::impl::VirtualGuardImpl(numbers.device().type()).getStream(numbers.device()));
}

StepReport PendingReport::wait() {
  if (ready_) ready_->synchronize();
  const auto* values = numbers_.const_data_ptr<float>();
  report_.loss_sum = values[0];
  report_.correct = values[1];
  report_.gradient_norm = values[2];
  report_.skipped = values[3] != 0;
  report_.loss_scale = values[4];
  return report_;
}

TrainingStep::TrainingStep(models::Transformer model, const run::Recipe& recipe, at::Device device)
    : model_(model),
      recipe_(recipe),
      device_(device),
      weights_(model, run::parse_precision(recipe.train.precision)),
      optimizer_(recipe.optimizer, weights_.masters()) {
  if (recipe.train.precision == "fp16") {
    loss_scale_ = at::full({}, kFirstLossScale, at::TensorOptions(device).dtype(at::kFloat));
    growth_ = at::zeros({}, at::TensorOptions(device).dtype(at::kInt));
  }
}

PendingReport TrainingStep::run(const StepPlan& plan,
                                const std::function<data::Batch()>& next_batch) {
  StepReport known;
  known.step = plan.step;
  known.rate = plan.rate;
  known.limit = plan.limit;
  weights_.zero_gradients();
  Tensor sums;          // [2]: loss, correct
  double expected = 0;  // gradients are of loss sum / expected until the true count is known
  std::uint32_t part = 0;
  model_->train();
  do {
    model_->set_dropout_seed(dropout_key(recipe_.seed, plan.step, part++));
    const auto batch = infer::place(next_batch(), device_);
    const auto parts = infer::compute_loss(model_, batch);
    if (expected == 0) expected = static_cast<double>(std::max<std::int64_t>(parts.count, 1));
    auto objective = parts.sum / expected;
    if (loss_scale_.defined()) objective = objective * loss_scale_;
    objective.backward();
    weights_.collect_gradients();
    const auto part = at::stack({parts.sum.detach(), parts.correct});
    sums = sums.defined() ? sums + part : part;
    known.targets += parts.count;
    known.tokens += batch.num_tokens;
    known.samples.insert(known.samples.end(), batch.samples.begin(), batch.samples.end());
  } while (known.tokens < recipe_.train.step_tokens);
  const auto numbers = update(plan, known, expected, sums);
  return PendingReport(std::move(known), numbers);
}

double TrainingStep::probe(const data::Batch& batch) {
  weights_.zero_gradients();
  model_->eval();
  const auto parts = infer::compute_loss(model_, infer::place(batch, device_));
  const auto mean = parts.sum / static_cast<double>(std::max<std::int64_t>(parts.count, 1));
  mean.backward();
  weights_.collect_gradients();
  const at::NoGradGuard no_grad;
  const auto norm = at::linalg_vector_norm(at::stack(at::_foreach_norm(weights_.gradients(), 2)));
  const auto numbers = at::stack({mean.detach(), norm}).to(at::kCPU, at::kDouble);
  const auto* values = numbers.const_data_ptr<double>();
  return std::isfinite(values[1]) ? values[0] : std::numeric_limits<double>::quiet_NaN();
}

Tensor TrainingStep::update(const StepPlan& plan, const StepReport& known, double expected,
                            const Tensor& sums) {
  at::NoGradGuard no_grad;
  const auto targets = static_cast<double>(std::max<std::int64_t>(known.targets, 1));
  auto divisor = at::full({}, targets / expected, sums.options());
  if (loss_scale_.defined()) divisor = divisor * loss_scale_;
  const auto norm =
      at::linalg_vector_norm(at::stack(at::_foreach_norm(weights_.gradients(), 2))) / divisor;
  const auto broken = at::isfinite(norm + sums[0]).logical_not();
  auto skip = broken;
  if (plan.skip_spikes) skip = at::logical_or(skip, at::gt(sums[0], plan.limit * targets));
  skip = skip.to(at::kFloat);
  if (recipe_.optimizer.clip > 0) {
    divisor = divisor * at::clamp_min((norm + 1e-6) / recipe_.optimizer.clip, 1);
  }
  optimizer_.step(weights_.gradients(), plan.rate, divisor, skip);
  weights_.publish();
  const auto scale = loss_scale_.defined() ? loss_scale_.clone() : at::ones({}, norm.options());
  if (loss_scale_.defined()) {
    at::_amp_update_scale_(loss_scale_, growth_, broken.to(at::kFloat), kGrowth, kBackoff,
                           kGrowthInterval);
  }
  return at::cat({sums, at::stack({norm, skip, scale})});
}

run::NamedTensors TrainingStep::state() const {
  auto state = optimizer_.state();
  if (loss_scale_.defined()) {
    state.emplace_back("loss_scale", loss_scale_);
    state.emplace_back("loss_scale_growth", growth_);
  }
  return state;
}

}  // namespace performer::train
