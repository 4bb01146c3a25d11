#include "performer/cli/convert_report.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "performer/report/table.h"

namespace performer::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kRows = 8;
constexpr std::int64_t kBatch = UINT32_MAX;  // of the samples: no step of fitting gets that far

std::vector<at::Tensor> rows_of(const fit::Samples& samples, at::Device device) {
  const auto batch = samples.batch(kBatch, kRows, device);
  std::vector<at::Tensor> rows;
  for (std::int64_t i = 0; i < kRows; ++i) {
    const auto length = batch.key_mask[i].sum().item<std::int64_t>();
    rows.push_back(batch.tokens[i].narrow(0, 0, length));
  }
  return rows;
}

// The numbers that people try, and the model's.
std::vector<std::int64_t> features_of(const models::ModelConfig& config) {
  std::vector<std::int64_t> features = {64, 128, 256};
  const auto own = config.attention.features;
  if (own > 0 && std::ranges::find(features, own) == features.end()) features.push_back(own);
  std::ranges::sort(features);
  return features;
}

}  // namespace

ConvertReport::ConvertReport(models::Transformer exact, models::Transformer converted,
                             run::Recipe recipe, const fit::Samples& samples)
    : exact_(std::move(exact)),
      converted_(std::move(converted)),
      recipe_(std::move(recipe)),
      rows_(rows_of(samples, exact_->parameters().front().device())) {
  exact_->eval(), converted_->eval();
  std::int64_t longest = 0;
  for (const auto& row : rows_) longest = std::max(longest, row.size(0));
  attention_.rows = fmt::format("{} rows of at most {} tokens of the text", kRows, longest);
  infer::QualitySample sample{rows_, features_of(recipe_.model)};
  sample.near = recipe_.model.attention.near;
  attention_.exact = infer::attention_quality(exact_, sample);
  attention_.growth.push_back(
      {"swapped, nothing fitted", infer::error_growth(exact_, converted_, rows_)});
}

std::map<std::string, std::string> ConvertReport::files(const std::string& name) {
  attention_.heads = infer::attention_quality(converted_, {rows_, features_of(recipe_.model)});
  attention_.growth.push_back({name, infer::error_growth(exact_, converted_, rows_)});
  return {{"report.json", json().dump(1, ' ', false, Json::error_handler_t::replace) + "\n"},
          {"report.html", page()}};
}

Json ConvertReport::json() const {
  const auto& attention = recipe_.model.attention;
  return {{"source", recipe_.source},
          {"features", attention.features},
          {"near", attention.near},
          {"layer_kinds", recipe_.model.layer_kinds},
          {"attention", to_json(attention_)}};
}

std::string ConvertReport::page() const {
  const auto& attention = recipe_.model.attention;
  report::Page page(recipe_.description.empty() ? "Converted model" : recipe_.description,
                    "What the swap of its attention costs, and what fitting gives back");
  const auto last = [&](std::size_t i) {
    return report::number_text(attention_.growth[i].errors.back(), 2);
  };
  page.add(report::key_figures(
      {{"features of a head", std::to_string(attention.features)},
       {"near field",
        attention.near > 0 ? fmt::format("{} tokens", attention.near) : std::string("none")},
       {"error of the last layer, swapped", last(0)},
       {"and " + attention_.growth[1].name, last(1)}}));
  add_sections(page, attention_);
  return page.html();
}

}  // namespace performer::cli
