#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "performer/data/token_space.h"
#include "performer/models/transformer.h"
#include "performer/run/recipe.h"

namespace performer::pretrained {

/// To lie in the checkpoint beside the model: name -> bytes.
using Files = std::map<std::string, std::string>;

struct ConvertOptions {
  bool favor = true;                     // else exact attention in every layer
  std::int64_t features = 64;            // of a head
  std::optional<std::int64_t> near;      // not given: 64 for causal models, else 0
  std::vector<std::int64_t> keep_exact;  // layers that stay exact
  std::int64_t seed = 0;                 // of the random projections
  /// Sets the features, which are then numbers of the model: models/fitted_features.h. Returns what
  /// is to be told of it.
  std::function<Files(models::Transformer model, const run::Recipe&, const data::TokenSpace&)>
      refine;
  bool check = false;  // read OUT again and compare every number
};

struct Converted {
  run::Recipe recipe;
  std::string architecture;  // of a run: what its recipe says it is
  std::int64_t parameters = 0, tensors = 0;
  std::vector<std::string> kept;  // tensors that travel along for an export
};

/// The default near field of a conversion. Causal models have heads that look at exact positions a
/// few tokens back, which features alone cannot follow.
inline constexpr std::int64_t kCausalNear = 64;

/// Reads the model of folder `from` and writes it to the new folder `to` as a checkpoint.
Converted convert(const std::filesystem::path& from, const std::filesystem::path& to,
                  const ConvertOptions& options);

/// Whether `folder` is a run of `performer train` or one of its checkpoints, rather than a folder in
/// Hugging Face's layout.
bool is_run(const std::filesystem::path& folder);

/// The same of a run or checkpoint of exact attention: its best checkpoint of validation, else the
/// latest. kUsage where a layer has other attention, which features would not imitate.
Converted convert_run(const std::filesystem::path& from, const std::filesystem::path& to,
                      const ConvertOptions& options);

}  // namespace performer::pretrained
