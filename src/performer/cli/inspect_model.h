#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "performer/infer/load_model.h"

namespace performer::cli {

/// What a model is and takes, without data: name -> words, in the order to show them, and the same
/// for programs.
struct ModelFacts {
  std::vector<std::pair<std::string, std::string>> lines;
  std::vector<std::pair<std::string, std::int64_t>> parts;  // parameters of each
};
ModelFacts facts_of(infer::LoadedModel& loaded);
nlohmann::ordered_json json_of(infer::LoadedModel& loaded);

/// Which kernel each layer's attention ran in a pass over `row` [L]: "cpu/avx512/fp32/…",
/// "composed", or "torch" for kinds that are torch's operators.
std::vector<std::string> kernels_of(models::Transformer& model, const at::Tensor& row);

/// "12.3 MiB"
std::string bytes_text(std::int64_t bytes);

}  // namespace performer::cli
