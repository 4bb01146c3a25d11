#include <torch/library.h>

#include <optional>
#include <string>
#include <tuple>

#include "performer/ops/analysis/attention_map.h"
#include "performer/ops/analysis/quality.h"

// Registration of the operators that look at attention rather than apply it.
namespace performer {
namespace {

using OptionalTensor = std::optional<Tensor>;

Causality to_causality(bool causal) {
  return causal ? Causality::kCausal : Causality::kBidirectional;
}

MapSelection to_selection(const OptionalTensor& rows, const OptionalTensor& columns,
                          std::optional<std::int64_t> pool) {
  return {rows.value_or(Tensor()), columns.value_or(Tensor()), pool};
}

Tensor attention_map_op(const Tensor& q, const Tensor& k, const OptionalTensor& projection,
                        c10::string_view feature_map, bool causal, std::optional<double> scale,
                        std::optional<double> eps, bool renormalize, const OptionalTensor& key_mask,
                        const OptionalTensor& projection_k, const OptionalTensor& bias_q,
                        const OptionalTensor& bias_k, const OptionalTensor& key_bias,
                        const OptionalTensor& rows, const OptionalTensor& columns,
                        std::optional<std::int64_t> pool) {
  FavorOptions options;
  options.feature_map = parse_feature_map(feature_map);
  options.causality = to_causality(causal);
  options.scale = scale;
  options.eps = eps;
  options.renormalize = renormalize ? Renormalize::kYes : Renormalize::kNo;
  options.key_mask = key_mask.value_or(Tensor());
  options.projection_k = projection_k.value_or(Tensor());
  options.bias_q = bias_q.value_or(Tensor());
  options.bias_k = bias_k.value_or(Tensor());
  options.key_bias = key_bias.value_or(Tensor());
  return attention_map(q, k, projection.value_or(Tensor()), options,
                       to_selection(rows, columns, pool));
}

Tensor exact_attention_map_op(const Tensor& q, const Tensor& k, bool causal,
                              std::optional<double> scale, const OptionalTensor& key_mask,
                              const OptionalTensor& key_bias, const OptionalTensor& rows,
                              const OptionalTensor& columns, std::optional<std::int64_t> pool) {
  ExactOptions options;
  options.causality = to_causality(causal);
  options.scale = scale;
  options.key_mask = key_mask.value_or(Tensor());
  options.key_bias = key_bias.value_or(Tensor());
  return exact_attention_map(q, k, options, to_selection(rows, columns, pool));
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor> approximation_quality_op(
    const Tensor& q, const Tensor& k, const Tensor& v, const OptionalTensor& projection,
    c10::string_view feature_map, bool causal, std::optional<double> scale,
    std::optional<double> eps, const OptionalTensor& key_mask, const OptionalTensor& projection_k,
    const OptionalTensor& bias_q, const OptionalTensor& bias_k, const OptionalTensor& key_bias,
    std::int64_t samples, std::int64_t seed) {
  QualityOptions options;
  options.favor.feature_map = parse_feature_map(feature_map);
  options.favor.causality = to_causality(causal);
  options.favor.scale = scale;
  options.favor.eps = eps;
  options.favor.key_mask = key_mask.value_or(Tensor());
  options.favor.projection_k = projection_k.value_or(Tensor());
  options.favor.bias_q = bias_q.value_or(Tensor());
  options.favor.bias_k = bias_k.value_or(Tensor());
  options.favor.key_bias = key_bias.value_or(Tensor());
  options.samples = samples;
  options.seed = static_cast<std::uint64_t>(seed);
  const ApproximationQuality found =
      approximation_quality(q, k, v, projection.value_or(Tensor()), options);
  return {found.squared_sum, found.predicted_error, found.effective_samples,
          found.error,       found.uniform_error,   found.suggested_features};
}

std::string quality_verdict_op(const Tensor& error, const Tensor& uniform_error,
                               const Tensor& suggested_features) {
  ApproximationQuality quality;
  quality.error = error;
  quality.uniform_error = uniform_error;
  quality.suggested_features = suggested_features;
  return verdict(quality);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(performer, m) {
  m.def(
      "attention_map(Tensor q, Tensor k, Tensor? projection, str feature_map, bool causal, float? "
      "scale, float? eps, bool renormalize, Tensor? key_mask, Tensor? projection_k, Tensor? "
      "bias_q, Tensor? bias_k, Tensor? key_bias, Tensor? rows, Tensor? columns, int? pool) -> "
      "Tensor",
      &attention_map_op);
  m.def(
      "exact_attention_map(Tensor q, Tensor k, bool causal, float? scale, Tensor? key_mask, "
      "Tensor? key_bias, Tensor? rows, Tensor? columns, int? pool) -> Tensor",
      &exact_attention_map_op);
  m.def(
      "approximation_quality(Tensor q, Tensor k, Tensor v, Tensor? projection, str feature_map, "
      "bool causal, float? scale, float? eps, Tensor? key_mask, Tensor? projection_k, Tensor? "
      "bias_q, Tensor? bias_k, Tensor? key_bias, int samples, int seed) -> (Tensor squared_sum, "
      "Tensor predicted_error, Tensor effective_samples, Tensor error, Tensor uniform_error, "
      "Tensor suggested_features)",
      &approximation_quality_op);
  m.def("quality_verdict(Tensor error, Tensor uniform_error, Tensor suggested_features) -> str",
        &quality_verdict_op);
}

}  // namespace performer
