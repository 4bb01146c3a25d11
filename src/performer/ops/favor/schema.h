#pragma once

#include <tuple>
#include <utility>
#include <vector>

#include "performer/ops/favor/results.h"

// The registered operators on the struct form. An implementation is a function of structs, and what
// TORCH_LIBRARY_IMPL takes is kForwardEntry<&implementation>, and so on.
namespace performer {

/// The arguments of the backward operator: gradients that come in, what the forward pass left
/// (`out` last), the forward pass's own, and which gradients are asked for.
inline constexpr auto kSavedFields =
    std::tuple_cat(std::tuple{SchemaField{"grad_out", &FavorSaved::grad_out, kRequired},
                              SchemaField{"grad_kv", &FavorSaved::grad_kv},
                              SchemaField{"grad_normalizer", &FavorSaved::grad_normalizer},
                              SchemaField{"grad_near_keys", &FavorSaved::grad_near_keys},
                              SchemaField{"grad_near_values", &FavorSaved::grad_near_values},
                              SchemaField{"grad_near_bias", &FavorSaved::grad_near_bias}},
                   fields_with<kResultFields, kRequired>(), std::tuple{std::get<0>(kResultFields)},
                   kBackwardFields, std::tuple{SchemaField{"needs", &FavorSaved::needs}});

using ForwardSignature = Signature<kFavorFields, kRequired, 0, FavorArgs>;
using BackwardSignature = Signature<kSavedFields, kRequired, 0, FavorSaved, FavorResult, FavorArgs>;
using StepSignature = Signature<kStepFields, kRequired | kGivenInStep, kWrittenInStep, FavorArgs>;

/// The results as the dispatcher and autograd hand them on, and back.
inline auto as_tuple(const FavorResult& r) {
  return std::apply([&](const auto&... field) { return std::tuple{r.*field.member...}; },
                    kResultFields);
}
inline std::vector<Tensor> as_list(const FavorResult& r) {
  return std::apply([&](const auto&... field) { return std::vector<Tensor>{r.*field.member...}; },
                    kResultFields);
}
using ResultTuple = decltype(as_tuple(FavorResult()));
FavorResult as_result(at::TensorList results);

template <FavorResult (*kImplementation)(const FavorArgs&)>
ResultTuple forward_body(const FavorArgs& args) {
  return as_tuple(kImplementation(args));
}
template <FavorResult (*kImplementation)(const FavorArgs&)>
inline constexpr auto* kForwardEntry = ForwardSignature::kFunction<&forward_body<kImplementation>>;

template <FavorGradients (*kImplementation)(const FavorSaved&, const FavorArgs&)>
FavorGradients backward_body(FavorSaved saved, FavorResult result, FavorArgs args) {
  saved.result = std::move(result);
  args.op = "favor_attention_backward";
  return kImplementation(saved, args);
}
template <FavorGradients (*kImplementation)(const FavorSaved&, const FavorArgs&)>
inline constexpr auto* kBackwardEntry =
    BackwardSignature::kFunction<&backward_body<kImplementation>>;

template <Tensor (*kImplementation)(const FavorArgs&)>
Tensor step_body(FavorArgs args) {
  args.causal = true;
  args.for_backward = false;
  args.op = "favor_step_";
  return kImplementation(args);
}
template <Tensor (*kImplementation)(const FavorArgs&)>
inline constexpr auto* kStepEntry = StepSignature::kFunction<&step_body<kImplementation>>;

/// Calls through the dispatcher.
FavorResult call_favor_attention(const FavorArgs& args);
FavorGradients call_favor_attention_backward(const FavorSaved& saved, const FavorArgs& args);
Tensor call_favor_step(const FavorArgs& args);

}  // namespace performer
