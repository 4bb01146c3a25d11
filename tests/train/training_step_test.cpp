#include "performer/train/training_step.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "performer/infer/generate.h"
#include "performer/run/make_model.h"

namespace performer::train {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

run::Recipe small_recipe() {
  run::Recipe recipe;
  recipe.model.vocabulary = 11;
  recipe.model.max_length = 8;
  recipe.model.layers = 1;
  recipe.model.dim = 8;
  recipe.model.heads = 2;
  recipe.model.ff_dim = 8;
  recipe.model.dropout = 0;
  recipe.model.attention.features = 4;
  return recipe;
}

data::Batch batch_of(std::int64_t rows, std::int64_t first = 0) {
  data::Batch batch;
  batch.tokens = ((at::arange(rows * 8).reshape({rows, 8}) + first * 8) * 7).remainder(11);
  batch.targets = (batch.tokens * 3 + 1).remainder(11);
  batch.num_targets = batch.num_tokens = rows * 8;
  batch.samples = {first};
  return batch;
}

StepPlan plan_of(std::int64_t step) { return {step, 1e-2, kInfinity, true}; }

struct Training {
  explicit Training(const run::Recipe& recipe)
      : model(run::make_model(recipe, at::kCPU)), step(model, recipe, at::kCPU) {}
  Tensor weights() {
    std::vector<Tensor> flat;
    for (const auto& item : step.weights().masters()) flat.push_back(item.second.flatten());
    return at::cat(flat).clone();
  }
  models::Transformer model;
  TrainingStep step;
};

TEST(TrainingStep, SeveralSmallBatchesMakeTheStepOfOneLarge) {
  auto recipe = small_recipe();
  Training whole(recipe);
  whole.step.run(plan_of(1), [] { return batch_of(4); }).wait();
  recipe.train.step_tokens = 32;
  Training parts(recipe);
  std::int64_t next = 0;
  const auto report = parts.step.run(plan_of(1), [&] { return batch_of(1, next++); }).wait();
  EXPECT_EQ(next, 4);
  EXPECT_EQ(report.tokens, 32);
  EXPECT_LT((whole.weights() - parts.weights()).abs().max().item<double>(), 2e-5);
}

TEST(TrainingStep, TakesAdamsFirstStep) {
  // The first step of Adam moves every weight with a gradient by the rate, whatever its size.
  auto recipe = small_recipe();
  recipe.optimizer.weight_decay = 0;
  Training run(recipe);
  const auto before = run.weights();
  run.step.run(plan_of(1), [] { return batch_of(4); }).wait();
  const auto moved = (run.weights() - before).abs();
  EXPECT_NEAR(moved.max().item<double>(), 1e-2, 1e-5);
  EXPECT_NEAR(at::median(moved.masked_select(moved > 0)).item<double>(), 1e-2, 1e-4);
}

TEST(TrainingStep, DecaysMatricesButNotVectors) {
  auto recipe = small_recipe();
  recipe.optimizer.weight_decay = 0.5;
  Training decayed(recipe);
  recipe.optimizer.weight_decay = 0;
  Training plain(recipe);
  for (auto* run : {&decayed, &plain}) run->step.run(plan_of(1), [] { return batch_of(4); }).wait();
  const auto &a = decayed.step.weights().masters(), &b = plain.step.weights().masters();
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].second.equal(b[i].second), a[i].second.dim() < 2) << a[i].first;
  }
}

TEST(TrainingStep, NeitherSpikesNorInfinitiesTouchTheWeights) {
  Training run(small_recipe());
  run.step.run(plan_of(1), [] { return batch_of(4); }).wait();
  const auto before = run.weights();
  const auto state = run.step.state().front().second.clone();
  auto plan = plan_of(2);
  plan.limit = 0.1;
  auto report = run.step.run(plan, [] { return batch_of(4); }).wait();
  EXPECT_TRUE(report.skipped);
  EXPECT_TRUE(run.weights().equal(before));
  auto weight = run.model->named_parameters()["norm.weight"].detach();
  const auto good = weight.clone();
  weight.fill_(std::numeric_limits<float>::infinity());
  report = run.step.run(plan_of(3), [] { return batch_of(4); }).wait();
  weight.copy_(good);
  EXPECT_TRUE(report.skipped);
  EXPECT_TRUE(run.weights().equal(before));
  EXPECT_TRUE(run.step.state().front().second.equal(state));
  EXPECT_FALSE(run.step.run(plan_of(4), [] { return batch_of(4); }).wait().skipped);
}

TEST(TrainingStep, AProbeChangesNothingAndKnowsWeightsThatAreOfNoUse) {
  for (const char* precision : {"fp32", "fp16"}) {
    auto recipe = small_recipe();
    recipe.train.precision = precision;
    Training probed(recipe), plain(recipe);
    const auto loss = probed.step.probe(batch_of(4));
    EXPECT_EQ(
        static_cast<float>(loss),
        static_cast<float>(plain.step.run(plan_of(1), [] { return batch_of(4); }).wait().loss()));
    probed.step.run(plan_of(1), [] { return batch_of(4); }).wait();
    EXPECT_TRUE(probed.weights().equal(plain.weights())) << precision;
  }
  Training run(small_recipe());
  at::NoGradGuard no_grad;
  for (auto& weight : run.model->parameters()) weight.mul_(1e30);  // finite, and of no use
  EXPECT_TRUE(run.weights().isfinite().all().item<bool>());
  at::AutoGradMode grad(true);
  EXPECT_TRUE(std::isnan(run.step.probe(batch_of(4))));
}

TEST(TrainingStep, TheSearchForALossScaleIsNoHarm) {
  StepReport report;
  report.targets = 1;
  report.loss_sum = 2;
  report.gradient_norm = kInfinity;
  EXPECT_FALSE(report.overflowed());  // no scale: the gradient itself
  report.loss_scale = 2;
  EXPECT_TRUE(report.overflowed());
  report.loss_sum = kInfinity;
  EXPECT_FALSE(report.overflowed());
}

TEST(TrainingStep, LearnsInHalfPrecision) {
  for (const char* precision : {"bf16", "fp16"}) {
    auto recipe = small_recipe();
    recipe.train.precision = precision;
    Training run(recipe);
    double first = 0, last = 0;
    for (std::int64_t step = 1; step <= 60; ++step) {
      const auto report = run.step.run(plan_of(step), [] { return batch_of(4); }).wait();
      EXPECT_FALSE(report.skipped) << precision << step;
      (step == 1 ? first : last) = report.loss();
    }
    EXPECT_LT(last, first / 2) << precision;
    EXPECT_EQ(run.step.weights().masters().front().second.scalar_type(), at::kFloat);
    EXPECT_NE(run.model->parameters().front().scalar_type(), at::kFloat);
  }
}

TEST(Sampling, KeepsToTheMostLikelyAndTheAllowed) {
  const auto logits = at::tensor({1.0, 3.0, 2.0, -1.0});
  infer::SamplingOptions options;
  options.temperature = 0;
  EXPECT_EQ(infer::sample_token(logits, options, 0, 0), 1);
  options.forbidden = {1};
  EXPECT_EQ(infer::sample_token(logits, options, 0, 0), 2);
  options = {};
  options.top_k = 2;
  std::vector<std::int64_t> seen(4);
  for (std::int64_t i = 0; i < 400; ++i)
    ++seen[static_cast<std::size_t>(infer::sample_token(logits, options, 0, i))];
  EXPECT_EQ(seen[0] + seen[3], 0);
  EXPECT_NEAR(static_cast<double>(seen[2]), 400 / (1 + std::exp(1.0)), 40);  // 4.5 deviations
  options = {};
  options.top_p = 0.6;  // the first alone has 0.64
  for (std::int64_t i = 0; i < 50; ++i) EXPECT_EQ(infer::sample_token(logits, options, 0, i), 1);
}

TEST(Sampling, StreamedTokensAreThoseOfOneFullPass) {
  auto recipe = small_recipe();
  recipe.model.positions = "rotary";
  recipe.model.max_length = 4096;
  auto model = run::make_model(recipe, at::kCPU);
  infer::SamplingOptions options;
  options.temperature = 0;
  options.length = 2000;
  const auto tokens = infer::generate(model, {3}, options, 1).sequences[0];
  std::vector<std::int64_t> all = {3};
  all.insert(all.end(), tokens.begin(), tokens.end());
  at::NoGradGuard no_grad;
  const auto input = at::tensor(all, at::kLong).unsqueeze(0);
  const auto logits = model->logits(model->hidden({input, {}}))[0];  // [L, V]
  const auto top = std::get<0>(logits.topk(2, -1));
  for (std::int64_t i = 0; i < 2000; ++i) {
    if ((top[i][0] - top[i][1]).item<double>() < 1e-4) continue;
    EXPECT_EQ(logits[i].argmax().item<std::int64_t>(), tokens[static_cast<std::size_t>(i)]) << i;
  }
}

}  // namespace
}  // namespace performer::train
