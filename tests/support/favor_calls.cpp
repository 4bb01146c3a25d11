#include "tests/support/favor_calls.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <utility>

namespace performer::testing {
namespace {

using c10::IValue;
using torch::jit::Stack;

constexpr std::int64_t kNearBlock = 2;

c10::OperatorHandle handle_of(const std::string& op) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(("performer::" + op).c_str(), "");
}

// What favor_attention returns: out, two of the rows, seven of the state, the fingerprint.
Stack attend_with(const Named& a) {
  return call("favor_attention", in_order("favor_attention", a));
}

at::ScalarType wide(at::ScalarType dtype) {
  return dtype == at::kDouble ? at::kDouble : at::kFloat;
}

Tensor offsets(std::vector<std::int64_t> values) { return at::tensor(values, at::kLong); }

void add_state(Named& a, at::ScalarType dtype = at::kFloat) {
  RandomTensors random;
  a["state_kv"] = random({kB, kHkv, kM, kDv}, dtype);
  a["state_normalizer"] = random({kB, kHkv, kM}, dtype).abs() + 1;
  a["state_log2_scale"] = (random({kB, kHkv, kM}) * 3).round().to(at::kInt);
}

void add_parameters(Named& a, at::ScalarType dtype) {
  RandomTensors random;
  a["key_mask"] = random.mask({kB, kL});
  a["projection_k"] = random({kHkv, kM, kD}, dtype);
  a["bias_q"] = random({kH, kM}, dtype);
  a["bias_k"] = random({kHkv, kM}, dtype);
  a["key_bias"] = random({kB, kHkv, kL}, dtype);
}

constexpr const char* kStateNames[] = {"kv",          "normalizer", "log2_scale",   "near_keys",
                                       "near_values", "near_bias",  "near_position"};

void add_final_state(Named& a, const Stack& results) {
  for (std::size_t i = 0; i < std::size(kStateNames); ++i) {
    a[std::string("state_") + kStateNames[i]] = results[3 + i];
  }
}

// The call of tokens [begin, end) alone.
Named narrowed(Named a, std::int64_t begin, std::int64_t end) {
  const auto cut = [&](const char* name, std::int64_t axis) {
    if (!a[name].isTensor()) return;
    a[name] = a[name].toTensor().slice(axis, begin, end).contiguous();
  };
  cut("q", 2), cut("k", 2), cut("v", 2);
  cut("key_mask", 1), cut("key_bias", 2), cut("query_bias", 2);
  return a;
}

// Every option and a near field, from the first token on.
Named near_start(at::ScalarType dtype) {
  Named a = attention("loglinear", true, dtype);
  add_parameters(a, wide(dtype));
  a["near"] = kNearBlock;
  a["query_bias"] = RandomTensors()({kB, kH, kL}, wide(dtype));
  return a;
}

c10::List<Tensor> state_of(const Named& a) {
  const Stack results = attend_with(a);
  c10::List<Tensor> state;
  for (std::size_t i = 0; i < std::size(kStateNames); ++i) {
    state.push_back(results[3 + i].toTensor());
  }
  return state;
}

}  // namespace

Stack call(const std::string& op, Stack stack) {
  handle_of(op).callBoxed(stack);
  return stack;
}

Stack in_order(const std::string& op, const Named& given) {
  Stack stack;
  for (const auto& argument : handle_of(op).schema().arguments()) {
    const auto found = given.find(argument.name());
    const bool number = argument.type()->kind() == c10::TypeKind::IntType;
    const IValue absent = number ? IValue(std::int64_t{0}) : IValue();
    stack.push_back(found == given.end() ? absent : found->second);
  }
  return stack;
}

Named attention(const std::string& map, bool causal, at::ScalarType dtype) {
  RandomTensors random;
  return {{"q", random({kB, kH, kL, kD}, dtype)},
          {"k", random({kB, kHkv, kL, kD}, dtype)},
          {"v", random({kB, kHkv, kL, kDv}, dtype)},
          {"projection", random({kHkv, kM, kD}, wide(dtype))},
          {"feature_map", map},
          {"causal", causal},
          {"scale", 0.5},
          {"renormalize", true},
          {"for_backward", true}};
}

Named every_option(at::ScalarType dtype) {
  Named a = attention("positive", true, dtype);
  add_parameters(a, wide(dtype));
  add_state(a, wide(dtype));
  return a;
}

Named packed(const std::string& map, bool causal) {
  Named a = attention(map, causal);
  RandomTensors random;
  a["q"] = random({1, kH, kL, kD}), a["k"] = random({1, kHkv, kL, kD}),
  a["v"] = random({1, kHkv, kL, kDv});
  a["cu_seqlens_q"] = offsets({0, 2, kL});
  a["cu_seqlens_k"] = offsets({0, 2, kL});
  a["max_seqlen_q"] = std::int64_t{3};
  a["max_seqlen_k"] = std::int64_t{3};
  return a;
}

Named continued() {
  Named a = attention("loglinear", true);
  const Stack results = attend_with(a);
  a["state_kv"] = results[3], a["state_normalizer"] = results[4];
  a["state_log2_scale"] = results[5], a["state_fingerprint"] = results.back();
  return a;
}

Named without_projection() {
  Named a = attention("relu", false, at::kBFloat16);
  a["projection"] = IValue(), a["eps"] = 1e-3;
  return a;
}

Named unnormalised() {
  Named a = attention("trigonometric", false, at::kDouble);
  a["renormalize"] = false;
  return a;
}

Named step() {
  Named a = attention("positive", true);
  RandomTensors random;
  a["q"] = random({kB, kH, 1, kD}), a["k"] = random({kB, kHkv, 1, kD}),
  a["v"] = random({kB, kHkv, 1, kDv});
  a["key_mask"] = at::ones({kB, 1}, at::kBool);
  a["bias_q"] = random({kM}), a["bias_k"] = random({kM});
  a["key_bias"] = random({kB, 1, 1});
  a["projection_k"] = random({kHkv, kM, kD});
  add_state(a);
  return a;
}

Named merged() {
  Named a, state;
  add_state(state);
  for (const char* name : {"kv", "normalizer", "log2_scale"}) {
    const Tensor t = state[std::string("state_") + name].toTensor();
    a[name] = t, a[std::string("later_") + name] = t + 1;
  }
  return a;
}

Named near() {
  Named a = attention("loglinear", true);
  a["near"] = kNearBlock;
  a["query_bias"] = RandomTensors()({kB, kH, kL});
  return a;
}

Named near_with_every_option(at::ScalarType dtype) {
  Named a = near_start(dtype);
  add_final_state(a, attend_with(a));
  return a;
}

Named near_packed() {
  Named a = packed("positive", false);
  a["near"] = kNearBlock;
  Named before = a;  // so many tokens that some have left the near field
  for (const char* name : {"q", "k", "v"}) {
    const Tensor t = a[name].toTensor();
    before[name] = at::cat({t, t, t}, 2);
  }
  before["cu_seqlens_q"] = before["cu_seqlens_k"] = offsets({0, 6, 3 * kL});
  before["max_seqlen_q"] = before["max_seqlen_k"] = IValue();
  add_final_state(a, attend_with(before));
  return a;
}

Named near_alone() {
  Named a = attention("hyperbolic", false, at::kBFloat16);
  a["near"] = kNearBlock;
  a["projection"] = at::zeros({0, kD});
  return a;
}

Named near_step() {
  Named a = narrowed(near_start(at::kFloat), 0, 1);
  a["key_mask"] = at::ones({kB, 1}, at::kBool);
  add_final_state(a, attend_with(near_start(at::kFloat)));
  return a;
}

Named near_merged() {
  const Named both = near_start(at::kFloat);
  const auto part = [&](const char* name) { return both.at(name); };
  Named first = narrowed(both, 0, 2 * kNearBlock);
  first["key_mask"] = IValue();  // it would move the border of the blocks
  return {{"earlier", state_of(first)},
          {"later", state_of(both)},
          {"projection", part("projection")},
          {"feature_map", "loglinear"},
          {"scale", 0.5},
          {"projection_k", part("projection_k")},
          {"bias_k", part("bias_k")}};
}

Named backward_of(Named a, const Parameters& parameters) {
  const Stack results = attend_with(a);
  RandomTensors random;
  const auto random_like = [&](const IValue& t) {
    return random(t.toTensor().sizes(), t.toTensor().scalar_type());
  };
  a["grad_out"] = random_like(results[0]);
  a["grad_kv"] = random_like(results[3]);
  a["grad_normalizer"] = random_like(results[4]);
  if (a.count("near") > 0) {
    a["grad_near_keys"] = random_like(results[6]);
    a["grad_near_values"] = random_like(results[7]);
    a["grad_near_bias"] = random_like(results[8]);
  }
  a["out"] = results[0], a["row_sum"] = results[1], a["row_log2_scale"] = results[2];
  a["kv"] = results[3], a["normalizer"] = results[4], a["log2_scale"] = results[5];
  std::vector<bool> needs(kNumGradients);
  needs[0] = needs[1] = needs[2] = true;
  for (const auto& parameter : parameters) needs[gradient_of(parameter)] = true;
  c10::List<bool> list;
  for (const bool need : needs) list.push_back(need);
  a["needs"] = list;
  return a;
}

}  // namespace performer::testing
