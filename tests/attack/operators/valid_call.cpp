#include <ATen/ATen.h>

#include <functional>
#include <map>

#include "performer/ops/favor/arguments.h"
#include "performer/ops/favor/schema.h"
#include "performer/ops/projection/projection.h"
#include "performer/ops/projection/structured.h"
#include "tests/attack/operators/operator_call.h"

namespace performer::testing {
namespace {

using at::IValue;
using Values = std::map<std::string, IValue>;

IValue maybe(const Tensor& t) { return t.defined() ? IValue(t) : IValue(); }
template <class T>
IValue maybe(const std::optional<T>& value) {
  return value ? IValue(*value) : IValue();
}

/// A problem of the shared lists in other, small sizes; every third has a near field.
OpCase small_case(Draw& draw) {
  static const std::vector<OpCase> cases = [] {
    auto all = op_cases();
    for (auto& c : gradient_cases()) all.push_back(c);
    return all;
  }();
  static const std::vector<OpCase> near_cases = read_cases("near");
  OpCase c = draw.of(draw.one_in(3) ? near_cases : cases);
  if (c.near > 0 && has_signs(c.map)) c.magnitude = 1;  // far weights of both signs, all huge
  if (c.near > 0) c.near = draw.one_in(8) ? draw.between(20, 90) : draw.between(1, 9);
  c.length = draw.one_in(8) ? draw.between(0, 2) : draw.between(1, 80);
  if (c.key_length >= 0) c.key_length = draw.between(0, 70);
  const bool own_width = c.features == 0;  // f(x): as many features as dims
  c.dim = draw.between(1, 40);
  if (!own_width) c.features = draw.between(1, 40);
  if (c.value_dim >= 0) c.value_dim = draw.between(1, 40);
  if (!c.packed) c.batch = draw.between(1, 3);
  return c;
}

Values favor_values(const Inputs& in) {
  const FavorArgs a = favor_args(in.q, in.k, in.v, in.W, in.options);
  Values values;
  for_each_field(kBackwardFields, [&](const auto& field) {
    if constexpr (kIsTensor<typename std::remove_cvref_t<decltype(field)>::Type>) {
      values[field.name] = maybe(a.*field.member);
    } else {
      values[field.name] = a.*field.member;
    }
  });
  return values;
}

/// The values in the schema's order; None for what an optional argument is not given.
OperatorCall assemble(const c10::OperatorHandle& op, const Values& values) {
  OperatorCall call{op, {}};
  for (const auto& argument : op.schema().arguments()) {
    const auto found = values.find(argument.name());
    if (found != values.end()) {
      call.arguments.push_back(found->second);
    } else {
      const bool optional = argument.type()->kind() == c10::TypeKind::OptionalType;
      TORCH_CHECK(optional || argument.default_value(), "no value for ", argument.name(), " of ",
                  op.schema().name());
      call.arguments.push_back(argument.default_value().value_or(IValue()));
    }
  }
  return call;
}

/// The inputs of a case; with a near field now and then without any feature.
Inputs inputs_of(const OpCase& c, Draw& draw) {
  Inputs in = make_inputs(c, draw.bits() % 1000);
  const bool parameters = c.biases || c.key_projection || c.initial_state;
  if (c.near > 0 && !parameters && draw.one_in(4)) in.W = in.W.narrow(-2, 0, 0);
  return in;
}

OperatorCall forward_call(const c10::OperatorHandle& op, Draw& draw) {
  const OpCase c = small_case(draw);
  auto call = assemble(op, favor_values(inputs_of(c, draw)));
  call.problem = c;
  return call;
}

c10::List<bool> draw_needs(const FavorArgs& a, Draw& draw) {
  c10::List<bool> needs;
  for_each_field(kGradientFields, [&](const auto& field) {
    needs.push_back((a.*field.member).defined() && draw.one_in(2));
  });
  needs.set(gradient_of(&FavorArgs::state_normalizer),  // of the state both or none
            needs.get(gradient_of(&FavorArgs::state_kv)));
  return needs;
}

OperatorCall backward_call(const c10::OperatorHandle& op, Draw& draw) {
  const Inputs in = inputs_of(small_case(draw), draw);
  FavorArgs a = favor_args(in.q, in.k, in.v, in.W, in.options);
  a.for_backward = true;
  const FavorResult r = call_favor_attention(a);
  Values values = favor_values(in);
  values["grad_out"] = at::ones_like(r.out);
  const auto now_and_then = [&](const char* name, const Tensor& t) {
    if (draw.one_in(2)) values[name] = at::ones_like(t);
  };
  now_and_then("grad_kv", r.kv), now_and_then("grad_normalizer", r.normalizer);
  now_and_then("grad_near_keys", r.near_keys), now_and_then("grad_near_values", r.near_values);
  now_and_then("grad_near_bias", r.near_bias);
  values["row_sum"] = r.row_sum, values["row_log2_scale"] = r.row_log2_scale;
  values["kv"] = r.kv, values["normalizer"] = r.normalizer, values["log2_scale"] = r.log2_scale;
  if (draw.one_in(2)) values["out"] = r.out;
  values["needs"] = draw_needs(a, draw);
  return assemble(op, values);
}

/// The problem with a causal prefix of its own as state, one token long.
OperatorCall step_call(const c10::OperatorHandle& op, Draw& draw) {
  OpCase c = small_case(draw);
  c.causality = Causality::kCausal;
  c.length = 1, c.key_length = -1;
  c.packed = false;
  c.initial_state = true;
  return assemble(op, favor_values(make_inputs(c, draw.bits() % 1000)));
}

/// A problem of the analysis operators: neither packed nor with a state.
Values analysis_values(Draw& draw) {
  OpCase c = small_case(draw);
  c.packed = c.initial_state = false;
  c.renormalize = Renormalize::kYes;
  c.length = std::max<std::int64_t>(c.length, 1);
  if (c.key_length >= 0) c.key_length = std::max<std::int64_t>(c.key_length, 1);
  Values values = favor_values(make_inputs(c, draw.bits() % 1000));
  if (draw.one_in(3)) {
    values["pool"] = draw.between(1, 9);
  } else if (draw.one_in(2)) {
    values["rows"] = at::arange(c.length, at::kLong).flip(0);
    values["columns"] = at::zeros({2}, at::kInt).narrow(0, 0, std::min<std::int64_t>(c.keys(), 2));
  }
  values["samples"] = draw.between(1, 9), values["seed"] = draw.between(0, 9);
  return values;
}

OperatorCall analysis_call(const c10::OperatorHandle& op, Draw& draw) {
  return assemble(op, analysis_values(draw));
}

OperatorCall merge_call(const c10::OperatorHandle& op, Draw& draw) {
  Values values;
  const auto N = draw.between(1, 3), H = draw.between(1, 3), M = draw.between(1, 20);
  for (const std::string prefix : {"", "later_"}) {
    values[prefix + "kv"] = at::ones({N, H, M, 5});
    values[prefix + "normalizer"] = at::ones({N, H, M});
    values[prefix + "log2_scale"] = at::full({N, H, M}, draw.between(-9, 9), at::kInt);
  }
  return assemble(op, values);
}

/// Two parts of one stream, the first of whole blocks, and what they must become.
OperatorCall near_merge_call(const c10::OperatorHandle& op, Draw& draw) {
  OpCase c = small_case(draw);
  while (c.near == 0) c = small_case(draw);
  c.causality = Causality::kCausal, c.dtype = at::kDouble, c.magnitude = 1;
  c.packed = c.initial_state = c.mask = false;
  const Inputs in = make_inputs(c, draw.bits() % 1000);
  if (in.options.key_bias.defined()) in.options.key_bias.nan_to_num_(0, 0, 0);  // no removed key
  const std::int64_t cut = draw.between(0, c.length / c.near) * c.near;
  const auto state_of = [&](std::int64_t begin, std::int64_t end) {
    const auto part = [&](const Tensor& t, std::int64_t axis) {
      return t.defined() ? t.slice(axis, begin, end) : t;
    };
    FavorOptions o = in.options;
    o.key_bias = part(o.key_bias, -1), o.query_bias = part(o.query_bias, -1);
    const FavorState s =
        favor_attention_with_state(part(in.q, 2), part(in.k, 2), part(in.v, 2), in.W, o).second;
    return std::vector<Tensor>{s.kv,          s.normalizer, s.log2_scale,   s.near_keys,
                               s.near_values, s.near_bias,  s.near_position};
  };
  auto call = assemble(op, {{"earlier", state_of(0, cut)},
                            {"later", state_of(cut, c.length)},
                            {"projection", in.W},
                            {"feature_map", std::string(to_string(c.map))},
                            {"projection_k", maybe(in.options.projection_k)},
                            {"bias_k", maybe(in.options.bias_k)}});
  call.expected = state_of(0, c.length);
  return call;
}

OperatorCall rotary_call(const c10::OperatorHandle& op, Draw& draw) {
  const auto B = draw.between(0, 3), L = draw.between(0, 9), pairs = draw.between(1, 5);
  return assemble(op, {{"x", at::ones({B, L, 2, 2 * pairs})},
                       {"first", draw.between(0, 9)},
                       {"back", draw.one_in(2)}});
}

OperatorCall features_call(const c10::OperatorHandle& op, Draw& draw) {
  const auto M = draw.between(1, 20), D = draw.between(1, 20);
  const bool softmax = draw.one_in(2);
  Values values{{"x", at::ones({draw.between(0, 4), D})},
                {"feature_map", std::string(softmax ? "hyperbolic" : "relu")}};
  if (softmax || draw.one_in(2)) values["projection"] = at::ones({M, D});
  if (softmax && draw.one_in(2)) values["bias"] = at::ones({2 * M});
  if (!softmax && draw.one_in(2)) values["eps"] = 0.5;
  return assemble(op, values);
}

std::string rounding(Draw& draw) { return draw.one_in(2) ? "bf16" : "none"; }

OperatorCall oprf_call(const c10::OperatorHandle& op, Draw& draw) {
  const auto W = at::ones({draw.between(1, 3), draw.between(1, 9), draw.between(1, 9)});
  return assemble(op,
                  {{"projection", W}, {"a", at::full({}, -0.25)}, {"rounding", rounding(draw)}});
}

Values draw_values(Draw& draw, const std::vector<std::string>& kinds) {
  Values values{{"num_features", draw.between(1, 40)},
                {"dim", draw.between(2, 40)},
                {"kind", draw.of(kinds)},
                {"norm", std::string(draw.one_in(2) ? "chi" : "sqrt_d")},
                {"seed", draw.between(-5, 5)},
                {"layer", draw.between(0, 5)},
                {"draw", draw.between(0, 5)},
                {"rounding", rounding(draw)}};
  if (draw.one_in(2)) values["heads"] = draw.between(1, 3);
  return values;
}

OperatorCall projection_call(const c10::OperatorHandle& op, Draw& draw) {
  return assemble(op, draw_values(draw, {"iid", "orthogonal", "simplex", "hadamard", "givens"}));
}

OperatorCall structured_draw_call(const c10::OperatorHandle& op, Draw& draw) {
  return assemble(op, draw_values(draw, {"hadamard", "givens"}));
}

OperatorCall structured_call(const c10::OperatorHandle& op, Draw& draw) {
  const std::string kind = draw.one_in(2) ? "hadamard" : "givens";
  const auto dim = draw.between(2, 20);
  ProjectionOptions options;
  options.kind = parse_projection_kind(kind);
  if (draw.one_in(2)) options.heads = 2;
  const auto p = draw_structured(draw.between(1, 40), dim, options);
  c10::List<Tensor> parts;
  for (const Tensor& t : {p.row_scale, p.signs, p.permutation, p.cosine, p.sine}) {
    if (t.defined()) parts.push_back(t);
  }
  return assemble(op, {{"x", at::ones({2, draw.between(0, 3), dim})},
                       {"kind", kind},
                       {"dim", dim},
                       {"parts", parts},
                       {"dtype", static_cast<std::int64_t>(at::kFloat)}});
}

OperatorCall verdict_call(const c10::OperatorHandle& op, Draw& draw) {
  const auto H = draw.between(1, 4);
  return assemble(op, {{"error", at::full({H}, 0.5, at::kDouble)},
                       {"uniform_error", at::ones({H}, at::kDouble)},
                       {"suggested_features", at::full({H}, 100, at::kDouble)}});
}

OperatorCall plain_call(const c10::OperatorHandle& op, Draw& draw) {
  return assemble(op, {{"iterations", draw.between(1, 50)}});
}

using Maker = OperatorCall (*)(const c10::OperatorHandle&, Draw&);

const std::map<std::string, Maker>& makers() {
  static const std::map<std::string, Maker> all{
      {"favor_attention", forward_call},
      {"favor_attention_backward", backward_call},
      {"favor_step_", step_call},
      {"attention_map", analysis_call},
      {"exact_attention_map", analysis_call},
      {"exact_attention", analysis_call},
      {"approximation_quality", analysis_call},
      {"fit_oprf", analysis_call},
      {"merge_states", merge_call},
      {"merge_near_states", near_merge_call},
      {"rotary", rotary_call},
      {"features", features_call},
      {"oprf", oprf_call},
      {"draw_projection", projection_call},
      {"draw_structured", structured_draw_call},
      {"structured_apply", structured_call},
      {"structured_dense", structured_call},
      {"quality_verdict", verdict_call},
      {"last_kernel", plain_call},
      {"fma_probe", plain_call},
  };
  return all;
}

}  // namespace

std::vector<c10::OperatorHandle> registered_operators() {
  std::vector<c10::OperatorHandle> found;
  auto names = c10::Dispatcher::singleton().getAllOpNames();
  std::sort(names.begin(), names.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  for (const auto& name : names) {
    if (name.name.starts_with("performer::")) {
      found.push_back(c10::Dispatcher::singleton().findSchemaOrThrow(name.name.c_str(),
                                                                     name.overload_name.c_str()));
    }
  }
  return found;
}

OperatorCall valid_call(const c10::OperatorHandle& op, Draw& draw) {
  const auto found = makers().find(op.schema().name().substr(std::string("performer::").size()));
  TORCH_CHECK(found != makers().end(), "add a maker of valid calls for ", op.schema().name());
  return found->second(op, draw);
}

}  // namespace performer::testing
