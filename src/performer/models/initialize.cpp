#include "performer/models/initialize.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

#include "performer/core/random.h"

namespace performer::models {
namespace {

constexpr std::uint8_t kWeights = 32;  // streams below are those of projections

double deviation(std::string_view name, const ModelConfig& config) {
  if (name.find(".core.") != std::string_view::npos) {
    return 1 / std::sqrt(static_cast<double>(config.max_length));
  }
  const bool ends_branch = name.find("layers.") == 0 && name.ends_with(".output.weight");
  return ends_branch ? 0.02 / std::sqrt(2.0 * static_cast<double>(config.layers)) : 0.02;
}

void fill(const at::Tensor& parameter, double deviation, const RandomStream& stream) {
  constexpr std::int64_t kPiece = 1 << 14;  // of a thread's part, which may be the whole
  auto* out = parameter.mutable_data_ptr<float>();
  at::parallel_for(0, parameter.numel(), kPiece, [&](std::int64_t begin, std::int64_t end) {
    std::vector<double> normals(static_cast<std::size_t>(std::min(kPiece, end - begin)));
    for (std::int64_t first = begin; first < end; first += kPiece) {
      const std::int64_t count = std::min(kPiece, end - first);
      stream.normals(static_cast<std::uint64_t>(first), count, normals.data());
      for (std::int64_t i = 0; i < count; ++i) {
        out[first + i] = static_cast<float>(deviation * normals[static_cast<std::size_t>(i)]);
      }
    }
  });
}

}  // namespace

void initialize(torch::nn::Module& model, const ModelConfig& config, std::uint64_t seed) {
  const at::NoGradGuard no_grad;
  RandomKey key{seed, 0, 0, 0};
  for (const auto& item : model.named_parameters()) {
    if (item.value().dim() > 1) {
      fill(item.value(), deviation(item.key(), config), RandomStream(key, kWeights));
    }
    ++key.layer;
  }
}

}  // namespace performer::models
