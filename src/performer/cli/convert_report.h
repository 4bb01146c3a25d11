#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

#include "performer/cli/quality_report.h"
#include "performer/fit/samples.h"
#include "performer/run/recipe.h"

namespace performer::cli {

/// What a conversion cost and what fitting gave back: report.json and report.html, which travel in
/// the converted checkpoint. A function of the models and rows: no times, no places.
class ConvertReport {
 public:
  /// Measures the swap as it is before anything is fitted.
  ConvertReport(models::Transformer exact, models::Transformer converted, run::Recipe recipe,
                const fit::Samples& samples);

  /// Measures again what is `name` now: file name -> bytes.
  std::map<std::string, std::string> files(const std::string& name);

 private:
  nlohmann::ordered_json json() const;
  std::string page() const;

  models::Transformer exact_, converted_;
  run::Recipe recipe_;
  std::vector<at::Tensor> rows_;
  AttentionReport attention_;
};

}  // namespace performer::cli
