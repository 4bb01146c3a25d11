#pragma once

#include <cstdint>
#include <tuple>

#include "performer/ops/favor/arguments.h"
#include "performer/ops/signature.h"

// The one list of arguments. Schemas, registered signatures, calls through the dispatcher, what
// autograd keeps, the gradients and their names all derive from it: a new argument is a member of
// FavorArgs and a line here. Its place here is its place in every schema.
namespace performer {

/// What is true of an argument, beside that favor_attention takes it.
enum Role : std::uint16_t {
  kForwardOnly = 0,
  kRequired = 1,          // a tensor that is always given; the others may be undefined
  kDifferentiable = 2,    // has a gradient
  kComposedGradient = 4,  // which the composed operator alone computes
  kInBackward = 8,        // favor_attention_backward takes it, so autograd keeps it
  kInStep = 16,           // favor_step_ takes it
  kWrittenInStep = 32,    // and writes to it
  kGivenInStep = 256,     // and needs it
  kInMap = 64,            // attention_map takes it
  kInQuality = 128,       // approximation_quality takes it
  kEverywhere = kInBackward | kInStep | kInMap | kInQuality,
  kParameter = kDifferentiable | kComposedGradient | kEverywhere,
  kNearState = kInBackward | kInStep | kWrittenInStep,
  kState = kNearState | kGivenInStep,
};

inline constexpr std::tuple kFavorFields{
    SchemaField{"q", &FavorArgs::q, kRequired | kDifferentiable | kEverywhere},
    SchemaField{"k", &FavorArgs::k, kRequired | kDifferentiable | kEverywhere},
    SchemaField{"v", &FavorArgs::v,
                kRequired | kDifferentiable | kInBackward | kInStep | kInQuality},
    SchemaField{"projection", &FavorArgs::projection, kParameter},
    SchemaField{"feature_map", &FavorArgs::feature_map, kEverywhere},
    SchemaField{"causal", &FavorArgs::causal,
                kInBackward | kInMap | kInQuality},  // a step always is
    SchemaField{"scale", &FavorArgs::scale, kEverywhere},
    SchemaField{"eps", &FavorArgs::eps, kEverywhere},
    SchemaField{"renormalize", &FavorArgs::renormalize, kInBackward | kInStep | kInMap},
    SchemaField{"near", &FavorArgs::near, kEverywhere},
    SchemaField{"key_mask", &FavorArgs::key_mask, kEverywhere},
    SchemaField{"cu_seqlens_q", &FavorArgs::cu_seqlens_q, kInBackward},
    SchemaField{"cu_seqlens_k", &FavorArgs::cu_seqlens_k, kInBackward},
    SchemaField{"max_seqlen_q", &FavorArgs::max_seqlen_q, kForwardOnly},
    SchemaField{"max_seqlen_k", &FavorArgs::max_seqlen_k, kForwardOnly},
    SchemaField{"projection_k", &FavorArgs::projection_k, kParameter},
    SchemaField{"bias_q", &FavorArgs::bias_q, kParameter},
    SchemaField{"bias_k", &FavorArgs::bias_k, kParameter},
    SchemaField{"key_bias", &FavorArgs::key_bias, kParameter},
    SchemaField{"query_bias", &FavorArgs::query_bias, kParameter},
    SchemaField{"state_kv", &FavorArgs::state_kv, kDifferentiable | kState},
    SchemaField{"state_normalizer", &FavorArgs::state_normalizer, kDifferentiable | kState},
    SchemaField{"state_log2_scale", &FavorArgs::state_log2_scale, kState},
    SchemaField{"state_near_keys", &FavorArgs::state_near_keys, kDifferentiable | kNearState},
    SchemaField{"state_near_values", &FavorArgs::state_near_values, kDifferentiable | kNearState},
    SchemaField{"state_near_bias", &FavorArgs::state_near_bias, kDifferentiable | kNearState},
    SchemaField{"state_near_position", &FavorArgs::state_near_position, kNearState},
    SchemaField{"state_fingerprint", &FavorArgs::state_fingerprint, kForwardOnly},
    SchemaField{"for_backward", &FavorArgs::for_backward, kForwardOnly, "True"},
};

/// The arguments that each operator takes, and those that have gradients.
inline constexpr auto kBackwardFields = fields_with<kFavorFields, kInBackward>();
inline constexpr auto kStepFields = fields_with<kFavorFields, kInStep>();
inline constexpr auto kMapFields = fields_with<kFavorFields, kInMap>();
inline constexpr auto kQualityFields = fields_with<kFavorFields, kInQuality>();
inline constexpr auto kGradientFields = fields_with<kFavorFields, kDifferentiable>();
inline constexpr std::size_t kNumGradients = std::tuple_size_v<decltype(kGradientFields)>;

/// The place of an argument's gradient among the results of the backward operator, and of the word
/// that asks for it in `needs`.
constexpr std::size_t gradient_of(Tensor FavorArgs::*argument) {
  std::size_t place = 0, found = kNumGradients;
  for_each_field(kGradientFields, [&](const auto& field) {
    if (field.member == argument) found = place;
    ++place;
  });
  return found;
}

}  // namespace performer
