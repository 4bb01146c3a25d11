#include "performer/train/dry_run.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "performer/core/size.h"
#include "performer/models/model_cost.h"
#include "performer/run/make_model.h"
#include "performer/run/precision.h"

namespace performer::train {
namespace {

std::string bytes_text(std::int64_t bytes) {
  const auto value = static_cast<double>(bytes);
  if (value >= 1 << 30) return fmt::format("{:.2f} GiB", value / (1 << 30));
  return fmt::format("{:.1f} MiB", value / (1 << 20));
}

}  // namespace

DryRun dry_run(run::Recipe recipe) {
  const auto dataset = data::open_dataset(recipe.data, data::Split::kTrain);
  return plan_of(run::fitted_to(std::move(recipe), dataset->space()), *dataset);
}

DryRun plan_of(const run::Recipe& recipe, const data::Dataset& train) {
  const bool full = recipe.train.precision == "fp32";
  const auto cost =
      models::estimate(recipe.model, recipe.train.batch, recipe.data.length, full ? 4 : 2);
  DryRun plan;
  plan.parameters = cost.parameters;
  plan.rows = recipe.train.batch;
  plan.length = recipe.data.length;
  // w, g, m, v; half: a copy and its gradient
  plan.weight_bytes = (Size(cost.parameters) * (full ? 16 : 20)).value();
  plan.activation_bytes = cost.activation_bytes;
  plan.flops_per_token = 3 * cost.flops_per_token;
  plan.break_even = models::break_even_length(recipe.model);
  plan.samples = train.size();
  plan.epochs = static_cast<double>(recipe.train.steps) * static_cast<double>(recipe.train.batch) /
                static_cast<double>(plan.samples);
  return plan;
}

std::string DryRun::weight_text() const { return bytes_text(weight_bytes); }
std::string DryRun::activation_text() const { return bytes_text(activation_bytes); }

std::string DryRun::to_text() const {
  return fmt::format(
      "parameters           {}\n"
      "batch                {} rows of {} tokens\n"
      "weights, optimizer   {}\n"
      "activations          {} (estimate)\n"
      "work                 {:.2f} MFLOP a token, forward and backward\n"
      "break-even length    {} tokens: from there FAVOR+ takes fewer operations than exact "
      "attention\n"
      "data                 {} samples; the run sees them {:.2f} times\n",
      parameters, rows, length, weight_text(), activation_text(), flops_per_token / 1e6, break_even,
      samples, epochs);
}

std::string DryRun::to_json() const {
  return nlohmann::ordered_json{{"parameters", parameters},
                                {"rows", rows},
                                {"length", length},
                                {"weight_bytes", weight_bytes},
                                {"activation_bytes", activation_bytes},
                                {"flops_per_token", flops_per_token},
                                {"break_even_length", break_even},
                                {"samples", samples},
                                {"epochs", epochs}}
             .dump() +
         "\n";
}

}  // namespace performer::train
