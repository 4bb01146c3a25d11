#include "performer/ops/favor/schema.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include <array>
#include <string>

namespace performer {
namespace {

template <class Function>
auto find(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Function>();
}

// "(Tensor out, Tensor row_sum, ...)"
std::string result_text() {
  std::string text;
  for_each_field(kResultFields, [&](const auto& field) {
    (text += text.empty() ? "(Tensor " : ", Tensor ") += field.name;
  });
  return text + ")";
}

}  // namespace

FavorResult as_result(at::TensorList results) {
  FavorResult r;
  std::size_t next = 0;
  for_each_field(kResultFields, [&](const auto& field) { r.*field.member = results[next++]; });
  return r;
}

FavorResult call_favor_attention(const FavorArgs& args) {
  static const auto op =
      find<ForwardSignature::Function<ResultTuple>>("performer::favor_attention");
  return std::apply([](const auto&... t) { return as_result(std::array{t...}); },
                    ForwardSignature::call(op, args));
}

FavorGradients call_favor_attention_backward(const FavorSaved& saved, const FavorArgs& args) {
  static const auto op =
      find<BackwardSignature::Function<FavorGradients>>("performer::favor_attention_backward");
  return BackwardSignature::call(op, saved, saved.result, args);
}

Tensor call_favor_step(const FavorArgs& args) {
  static const auto op = find<StepSignature::Function<Tensor>>("performer::favor_step_");
  return StepSignature::call(op, args);
}

TORCH_LIBRARY_FRAGMENT(performer, m) {
  m.def(("favor_attention(" + ForwardSignature::text() + ") -> " + result_text()).c_str());
  m.def(("favor_attention_backward(" + BackwardSignature::text() + ") -> Tensor[]").c_str());
  m.def(("favor_step_(" + StepSignature::text() + ") -> Tensor").c_str());
}

}  // namespace performer
