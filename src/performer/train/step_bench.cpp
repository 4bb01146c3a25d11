#include "performer/train/step_bench.h"

#include <ATen/ATen.h>
#include <c10/core/CachingDeviceAllocator.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <string>
#include <vector>

#include "performer/run/make_model.h"
#include "performer/train/training_step.h"

namespace performer::train {
namespace {

constexpr std::int64_t kWarmUp = 3;

double peak_mib(at::Device device) {
  constexpr double kMib = 1 << 20;
  if (!device.is_cpu()) {
    const auto stats = c10::getDeviceAllocator(device.type())->getDeviceStats(device.index());
    const auto all = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    return static_cast<double>(stats.allocated_bytes[all].peak) / kMib;
  }
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmHWM:", 0) == 0) return std::stod(line.substr(6)) / 1024;
  }
  return 0;
}

data::Batch random_batch(const run::Recipe& recipe) {
  const auto rows = recipe.train.batch, length = recipe.data.length;
  data::Batch batch;
  batch.tokens = at::randint(recipe.model.vocabulary, {rows, length}, at::kLong);
  batch.targets = at::randint(recipe.model.vocabulary, {rows, length}, at::kLong);
  batch.num_targets = batch.num_tokens = rows * length;
  return batch;
}

}  // namespace

StepBench bench_step(const run::Recipe& recipe, at::Device device, std::int64_t steps) {
  const auto model = run::make_model(recipe, device);
  TrainingStep step(model, recipe, device);
  const auto batch = random_batch(recipe);
  std::vector<double> times;
  times.reserve(static_cast<std::size_t>(steps));
  for (std::int64_t i = 0; i < kWarmUp + steps; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    StepPlan plan;
    plan.step = i + 1;
    plan.rate = recipe.optimizer.rate;
    step.run(plan, [&]() -> data::Batch { return data::Batch(batch); }).wait();
    const std::chrono::duration<double, std::milli> spent =
        std::chrono::steady_clock::now() - begin;
    if (i >= kWarmUp) times.push_back(spent.count());
  }
  std::sort(times.begin(), times.end());
  StepBench result;
  result.step_ms = times[times.size() / 2];
  result.spread_ms = times[times.size() * 3 / 4] - times[times.size() / 4];
  result.tokens_per_second = 1e3 * static_cast<double>(batch.num_tokens) / result.step_ms;
  result.memory_mib = peak_mib(device);
  for (const auto& [name, tensor] : step.weights().masters()) result.parameters += tensor.numel();
  return result;
}

}  // namespace performer::train
