#include <torch/library.h>

#include <optional>
#include <string>
#include <tuple>

#include "performer/ops/analysis/attention_map.h"
#include "performer/ops/analysis/quality.h"
#include "performer/ops/favor/fields.h"

// Registration of the operators that look at attention rather than apply it.
namespace performer {
namespace {

Causality to_causality(bool causal) {
  return causal ? Causality::kCausal : Causality::kBidirectional;
}

MapSelection to_selection(const OptionalTensor& rows, const OptionalTensor& columns,
                          std::optional<std::int64_t> pool) {
  return {rows.value_or(Tensor()), columns.value_or(Tensor()), pool};
}

// favor_attention's arguments (fields.h), and what to look at.
constexpr auto kAttentionMapFields =
    std::tuple_cat(kMapFields, std::tuple{SchemaField{"rows", &MapSelection::rows},
                                          SchemaField{"columns", &MapSelection::columns},
                                          SchemaField{"pool", &MapSelection::pool}});
using AttentionMapSignature = Signature<kAttentionMapFields, kRequired, 0, FavorArgs, MapSelection>;

Tensor attention_map_op(const FavorArgs& a, const MapSelection& selection) {
  return attention_map(a.q, a.k, a.projection, favor_options(a), selection);
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

struct Sampling {
  std::int64_t samples = 0, seed = 0;
};
constexpr auto kSampledQualityFields = std::tuple_cat(
    kQualityFields,
    std::tuple{SchemaField{"samples", &Sampling::samples}, SchemaField{"seed", &Sampling::seed}});
using QualitySignature = Signature<kSampledQualityFields, kRequired, 0, FavorArgs, Sampling>;

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor> approximation_quality_op(
    const FavorArgs& a, const Sampling& sampling) {
  const QualityOptions options{favor_options(a), sampling.samples,
                               static_cast<std::uint64_t>(sampling.seed)};
  const ApproximationQuality found = approximation_quality(a.q, a.k, a.v, a.projection, options);
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
  m.def(("attention_map(" + AttentionMapSignature::text() + ") -> Tensor").c_str(),
        AttentionMapSignature::kFunction<&attention_map_op>);
  m.def(
      "exact_attention_map(Tensor q, Tensor k, bool causal, float? scale, Tensor? key_mask, "
      "Tensor? key_bias, Tensor? rows, Tensor? columns, int? pool) -> Tensor",
      &exact_attention_map_op);
  m.def(
      ("approximation_quality(" + QualitySignature::text() +
       ") -> (Tensor squared_sum, Tensor predicted_error, Tensor effective_samples, Tensor error, "
       "Tensor uniform_error, Tensor suggested_features)")
          .c_str(),
      QualitySignature::kFunction<&approximation_quality_op>);
  m.def("quality_verdict(Tensor error, Tensor uniform_error, Tensor suggested_features) -> str",
        &quality_verdict_op);
}

}  // namespace performer
