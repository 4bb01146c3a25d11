#include "tests/support/operator_cases.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/CPUGeneratorImpl.h>

#include <map>
#include <string>
#include <utility>

#include "performer/ops/favor/fields.h"

namespace performer::testing {
namespace {

using at::Tensor;
using c10::IValue;
using torch::jit::Stack;
using Named = std::map<std::string, IValue>;

constexpr std::int64_t kB = 2, kH = 4, kHkv = 2, kL = 5, kD = 3, kDv = 4, kM = 6;

c10::OperatorHandle handle(const std::string& op) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(("performer::" + op).c_str(), "");
}

Stack call(const std::string& op, Stack stack) {
  handle(op).callBoxed(stack);
  return stack;
}

// The arguments in the order of the schema; those that are not given are None, and whole numbers 0.
Stack in_order(const std::string& op, const Named& given) {
  Stack stack;
  for (const auto& argument : handle(op).schema().arguments()) {
    const auto found = given.find(argument.name());
    const bool number = argument.type()->kind() == c10::TypeKind::IntType;
    const IValue absent = number ? IValue(std::int64_t{0}) : IValue();
    stack.push_back(found == given.end() ? absent : found->second);
  }
  return stack;
}

class RandomTensors {
 public:
  Tensor operator()(at::IntArrayRef sizes, at::ScalarType dtype = at::kFloat) {
    return at::randn(sizes, generator_, at::kDouble).to(dtype);
  }
  Tensor mask(at::IntArrayRef sizes) { return (*this)(sizes).gt(-0.5); }

 private:
  at::Generator generator_ = at::detail::createCPUGenerator(1);
};

Tensor integers(std::vector<std::int64_t> values) { return at::tensor(values, at::kLong); }

Named attention(const std::string& map, bool causal, at::ScalarType dtype = at::kFloat) {
  RandomTensors random;
  const auto wide = dtype == at::kDouble ? at::kDouble : at::kFloat;
  return {{"q", random({kB, kH, kL, kD}, dtype)},
          {"k", random({kB, kHkv, kL, kD}, dtype)},
          {"v", random({kB, kHkv, kL, kDv}, dtype)},
          {"projection", random({kHkv, kM, kD}, wide)},
          {"feature_map", map},
          {"causal", causal},
          {"scale", 0.5},
          {"renormalize", true},
          {"for_backward", true}};
}

void add_state(Named& a, at::ScalarType dtype = at::kFloat) {
  RandomTensors random;
  a["state_kv"] = random({kB, kHkv, kM, kDv}, dtype);
  a["state_normalizer"] = random({kB, kHkv, kM}, dtype).abs() + 1;
  a["state_log2_scale"] = (random({kB, kHkv, kM}) * 3).round().to(at::kInt);
}

Named every_option(at::ScalarType dtype = at::kFloat) {
  Named a = attention("positive", true, dtype);
  RandomTensors random;
  const auto wide = dtype == at::kDouble ? at::kDouble : at::kFloat;
  a["key_mask"] = random.mask({kB, kL});
  a["projection_k"] = random({kHkv, kM, kD}, wide);
  a["bias_q"] = random({kH, kM}, wide);
  a["bias_k"] = random({kHkv, kM}, wide);
  a["key_bias"] = random({kB, kHkv, kL}, wide);
  add_state(a, wide);
  return a;
}

Named packed(const std::string& map, bool causal) {
  Named a = attention(map, causal);
  RandomTensors random;
  a["q"] = random({1, kH, kL, kD}), a["k"] = random({1, kHkv, kL, kD}),
  a["v"] = random({1, kHkv, kL, kDv});
  a["cu_seqlens_q"] = integers({0, 2, kL});
  a["cu_seqlens_k"] = integers({0, 2, kL});
  a["max_seqlen_q"] = std::int64_t{3};
  a["max_seqlen_k"] = std::int64_t{3};
  return a;
}

Named near() {
  Named a = attention("loglinear", true);
  a["near"] = std::int64_t{2};
  a["query_bias"] = RandomTensors()({kB, kH, kL});
  return a;
}

// A state of this very call's features, fingerprint and all.
Named continued() {
  Named a = attention("loglinear", true);
  const Stack results = call("favor_attention", in_order("favor_attention", a));
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

// What autograd hands the backward operator after the forward call `a`.
using Parameters = std::vector<Tensor FavorArgs::*>;

Named backward_of(Named a, const Parameters& parameters) {
  const Stack results = call("favor_attention", in_order("favor_attention", a));
  RandomTensors random;
  const auto random_like = [&](const IValue& t) {
    return random(t.toTensor().sizes(), t.toTensor().scalar_type());
  };
  a["grad_out"] = random_like(results[0]);
  a["grad_kv"] = random_like(results[3]);
  a["grad_normalizer"] = random_like(results[4]);
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

Named exact() {
  Named a = attention("positive", true);
  RandomTensors random;
  a["key_mask"] = random.mask({kB, kL});
  a["key_bias"] = random({kB, kHkv, kL});
  return a;
}

Named map_of(Named a) {
  a["rows"] = integers({3, 0}), a["columns"] = integers({1, 2, 2});
  return a;
}

Named pooled(Named a) {
  a["pool"] = std::int64_t{2};
  return a;
}

Named measured(bool causal) {
  Named a = every_option();
  a["causal"] = causal, a["samples"] = std::int64_t{3}, a["seed"] = std::int64_t{0};
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

Named drawn(const std::string& kind) {
  return {{"num_features", kM},
          {"dim", kD},
          {"heads", std::int64_t{2}},
          {"kind", kind},
          {"norm", "chi"},
          {"seed", std::int64_t{5}},
          {"layer", std::int64_t{1}},
          {"draw", std::int64_t{2}},
          {"rounding", "bf16"}};
}

Named structured(const std::string& kind) {
  const Stack parts = call("draw_structured", in_order("draw_structured", drawn(kind)));
  c10::List<Tensor> list;
  for (const Tensor& part : parts[0].toTensorVector()) list.push_back(part.clone());
  RandomTensors random;
  return {{"x", random({2, kL, kD})},
          {"kind", kind},
          {"dim", kD},
          {"parts", list},
          {"dtype", static_cast<std::int64_t>(at::kFloat)}};
}

// Results 3 to 9 of a call are its final state.
c10::List<Tensor> state_of(const Named& call_arguments) {
  const Stack results = call("favor_attention", in_order("favor_attention", call_arguments));
  c10::List<Tensor> state;
  for (std::size_t i = 3; i < 10; ++i) state.push_back(results[i].toTensor());
  return state;
}

Named merged_near() {
  Named first = near();
  for (const char* name : {"q", "k", "v"}) first[name] = first[name].toTensor().narrow(2, 0, 4);
  first["query_bias"] = first["query_bias"].toTensor().narrow(2, 0, 4);
  return {{"earlier", state_of(first)},
          {"later", state_of(near())},
          {"projection", near()["projection"]},
          {"feature_map", "loglinear"},
          {"scale", 0.5}};
}

using Accepted = std::vector<std::string>;

OperatorCase make(const std::string& op, const std::string& name,
                  const std::function<Named()>& given, const Accepted& accepted,
                  bool has_oracle = false) {
  return {op, name, [op, given] { return in_order(op, given()); }, accepted, has_oracle};
}

// Packed sequences are no longer than this.
// Another block is another field.
constexpr const char* kNear = "near:1";
constexpr const char* kLimits = "max_seqlen_@(q|k):@(4|1099511627776|9223372036854775807)";
constexpr const char* kValueDims = "v:size3=*";
constexpr const char* kQueries = "q:size2=*";
constexpr const char* kFeatures = "projection:size1=@(1|5|7)";
constexpr const char* kPositions = "@(rows|columns):@(size0=*|0|reversed)";
// At most the whole map.
constexpr const char* kPools = "pool:@(1|3|1099511627776|9223372036854775807)";
constexpr const char* kFloats = "@(Double|Half|BFloat16)";
// The rows of the last block that are kept are as many as row_scale has.
constexpr const char* kKeptRows = R"(parts:\[0\]size1=5)";
constexpr const char* kMoreKeptRows = R"(parts:\[0\]size1=7)";

std::string dtypes_of(const std::string& arguments) { return arguments + ":" + kFloats; }

void add_favor_cases(std::vector<OperatorCase>& cases) {
  const auto add = [&](const char* name, const std::function<Named()>& given, const Accepted& a) {
    cases.push_back(make("favor_attention", name, given, a, true));
  };
  add("with every option", [] { return every_option(); }, {});
  add("packed", [] { return packed("positive", false); },
      {kValueDims, kFeatures, kLimits, kNear});
  add("packed causal", [] { return packed("relu", true); }, {kValueDims, kFeatures, kLimits});
  add("continued", continued, {});
  add("without projection", without_projection, {kQueries, kValueDims, "projection:given Float"});
  add("unnormalised", unnormalised, {kQueries, kValueDims, kFeatures, kNear});
  add("near", [] { return near(); }, {kValueDims, kNear});
  cases.push_back(make("favor_step_", "one token", step, {"key_bias:size1=2"}, true));
  cases.push_back(make("merge_states", "two states", merged, {}, true));
  cases.push_back(make("merge_near_states", "a whole block first", merged_near, {}, true));
}

const Parameters kStateParts{&FavorArgs::state_kv, &FavorArgs::state_normalizer};

void add_backward_cases(std::vector<OperatorCase>& cases) {
  const auto add = [&](const char* name, const std::function<Named()>& given) {
    cases.push_back(make("favor_attention_backward", name, given, {}));
  };
  add("fused", [] { return backward_of(every_option(), kStateParts); });
  add("of every parameter", [] {
    Parameters all{&FavorArgs::projection, &FavorArgs::projection_k, &FavorArgs::bias_q,
                   &FavorArgs::bias_k, &FavorArgs::key_bias};
    all.insert(all.end(), kStateParts.begin(), kStateParts.end());
    return backward_of(every_option(), all);
  });
  add("of float64", [] {
    return backward_of(every_option(at::kDouble),
                       {&FavorArgs::projection, &FavorArgs::projection_k});
  });
  add("bidirectional", [] { return backward_of(attention("elu1", false), {}); });
  add("packed", [] { return backward_of(packed("positive", true), {}); });
}

Named features_of(const std::string& map) {
  RandomTensors random;
  return {{"x", random({2, kL, kD})}, {"projection", random({kM, kD})}, {"feature_map", map}};
}

void add_feature_cases(std::vector<OperatorCase>& cases) {
  const std::string positions = "x:@(size0=*|size1=*|rank?1)";
  const std::string dtypes = dtypes_of("@(x|projection|bias)");
  cases.push_back(make(
      "features", "positive",
      [] {
        Named a = features_of("positive");
        a["bias"] = RandomTensors()({kM});
        return a;
      },
      {positions, dtypes}, true));
  cases.push_back(make(
      "features", "relu",
      [] {
        Named a = features_of("relu");
        a["eps"] = 0.5;
        return a;
      },
      {positions, dtypes, "projection:size0=@(1|5|7)"}, true));
  cases.push_back(make(
      "oprf", "per head",
      [] {
        return Named{{"projection", RandomTensors()({2, kM, kD})},
                     {"a", at::tensor({-0.1, -0.2}, at::kDouble)},
                     {"rounding", "none"}};  // the oracle's W2 is float64
      },
      {kFeatures, "projection:size2=@(1|2|4)", dtypes_of("projection"), "projection:meta",
       "a:@(size0=1|number|rank-1|zero|Float|Half|BFloat16)"},
      true));
  cases.push_back(make("fit_oprf", "masked", exact, {"q:size2=@(1|4|6)", "k:size1=1"}, true));
}

void add_map_cases(std::vector<OperatorCase>& cases) {
  const auto add = [&](const char* op, const char* name, const std::function<Named()>& given,
                       const Accepted& a) { cases.push_back(make(op, name, given, a, true)); };
  add("attention_map", "chosen", [] { return map_of(every_option()); }, {kPositions});
  add("attention_map", "pooled", [] { return pooled(attention("relu", false)); },
      {kPools, kQueries, "k:size2=*", kFeatures});
  add("exact_attention_map", "chosen", [] { return map_of(exact()); }, {kPositions});
  add("exact_attention_map", "pooled", [] { return pooled(exact()); }, {kPools});
  add("exact_attention", "masked", exact, {kValueDims});
  add("exact_attention", "fused",
      [] {
        Named a = exact();
        a["key_mask"] = a["key_bias"] = IValue();
        a["v"] = RandomTensors()({kB, kHkv, kL, kD});
        return a;
      },
      {kValueDims});
}

void add_quality_cases(std::vector<OperatorCase>& cases) {
  const Accepted sampling{"samples:@(2|4|1099511627776|9223372036854775807)", "seed:*",
                          "v:size3=@(1|3|5)"};
  Accepted bidirectional = sampling;
  bidirectional.push_back("q:size2=@(1|4|6)");
  cases.push_back(make(
      "approximation_quality", "causal", [] { return measured(true); }, sampling, true));
  cases.push_back(make(
      "approximation_quality", "bidirectional", [] { return measured(false); }, bidirectional,
      true));
  cases.push_back(make("quality_verdict", "of three heads",
                       [] {
                         RandomTensors random;
                         return Named{{"error", random({3}).abs()},
                                      {"uniform_error", random({3}).abs()},
                                      {"suggested_features", random({3}).abs()}};
                       },
                       {dtypes_of("*")}));
}

void add_projection_cases(std::vector<OperatorCase>& cases) {
  const auto add = [&](const char* op, const char* kind, Named (*given)(const std::string&),
                       const Accepted& a) {
    const bool has_oracle = std::string(op) == "structured_apply";
    cases.push_back(make(
        op, kind, [=] { return given(kind); }, a, has_oracle));
  };
  const std::string positions = "x:@(size1=*|rank+1)", dtypes = dtypes_of("x");
  const std::string results = "dtype:@(5|7)";  // float16 and float64
  const Accepted draws{"num_features:@(5|7)", "dim:@(2|4)",   "heads:@(1|3|none)", "seed:*",
                       "layer:@(0|2)",        "draw:@(0|1|3)"};
  add("draw_projection", "orthogonal", drawn, draws);
  add("draw_structured", "hadamard", drawn, draws);
  add("draw_structured", "givens", drawn, draws);
  add("structured_apply", "hadamard", structured, {positions, dtypes, kKeptRows, kMoreKeptRows});
  add("structured_apply", "givens", structured, {positions, dtypes, kKeptRows});
  // Hadamard factors have 4 rows for 3 dimensions and for 4.
  add("structured_dense", "hadamard", structured, {results, kKeptRows, kMoreKeptRows, "dim:4"});
  add("structured_dense", "givens", structured, {results, kKeptRows});
}

std::vector<OperatorCase> make_cases() {
  std::vector<OperatorCase> cases;
  add_favor_cases(cases);
  add_backward_cases(cases);
  add_feature_cases(cases);
  add_map_cases(cases);
  add_quality_cases(cases);
  add_projection_cases(cases);
  cases.push_back(make(
      "rotary", "from a position",
      [] {
        return Named{
            {"x", RandomTensors()({2, 5, 3, 4})}, {"first", std::int64_t{7}}, {"back", false}};
      },
      {"x:@(size0=*|size1=*|size2=*|size3=0|rank?1|meta)", dtypes_of("x"),
       "first:@(0|6|8|1099511627776)"},
      true));
  cases.push_back(make("fma_probe", "short",
                       [] {
                         return Named{{"iterations", std::int64_t{3}}};
                       },
                       {"iterations:@(2|4)"}));
  cases.push_back(make("last_kernel", "any", [] { return Named{}; }, {}));
  return cases;
}

}  // namespace

const std::vector<OperatorCase>& operator_cases() {
  static const std::vector<OperatorCase> cases = make_cases();
  return cases;
}

}  // namespace performer::testing
