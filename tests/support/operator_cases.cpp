#include "tests/support/operator_cases.h"

#include <ATen/ATen.h>

#include <string>

#include "tests/support/favor_calls.h"

namespace performer::testing {
namespace {

using at::Tensor;
using c10::IValue;
using torch::jit::Stack;

Tensor integers(std::vector<std::int64_t> values) { return at::tensor(values, at::kLong); }

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

Named measured(Named a, bool causal) {
  a["causal"] = causal, a["samples"] = std::int64_t{3}, a["seed"] = std::int64_t{0};
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

using Accepted = std::vector<std::string>;

OperatorCase make(const std::string& op, const std::string& name,
                  const std::function<Named()>& given, const Accepted& accepted,
                  bool has_oracle = false) {
  return {op, name, [op, given] { return in_order(op, given()); }, accepted, has_oracle};
}

// A near field where there was none, and one of other blocks.
constexpr const char* kNear = "near:1";
constexpr const char* kNearBlocks = "near:@(1|3)";
// Packed sequences are no longer than this.
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
  add("packed", [] { return packed("positive", false); }, {kValueDims, kFeatures, kLimits, kNear});
  add("packed causal", [] { return packed("relu", true); }, {kValueDims, kFeatures, kLimits});
  add("continued", continued, {});
  add("without projection", without_projection, {kQueries, kValueDims, "projection:given Float"});
  add("unnormalised", unnormalised, {kQueries, kValueDims, kFeatures, kNear});
  add("near", near, {kValueDims, kNearBlocks, kFeatures, "projection:size1=0"});
  add("near with every option", [] { return near_with_every_option(); }, {});
  add("near of float64", [] { return near_with_every_option(at::kDouble); }, {});
  add("near packed", near_packed, {kLimits});
  add("near alone", near_alone, {kValueDims, kNearBlocks, "projection:size0=1"});
  cases.push_back(make("favor_step_", "one token", step, {"key_bias:size1=2"}, true));
  cases.push_back(make("favor_step_", "near", near_step, {}, true));
  cases.push_back(make("merge_states", "two states", merged, {}, true));
  cases.push_back(make("merge_near_states", "a whole block first", near_merged, {}, true));
}

const Parameters kStateParts{&FavorArgs::state_kv, &FavorArgs::state_normalizer};
const Parameters kNearParts{&FavorArgs::query_bias,      &FavorArgs::key_bias,
                            &FavorArgs::state_kv,        &FavorArgs::state_normalizer,
                            &FavorArgs::state_near_keys, &FavorArgs::state_near_values,
                            &FavorArgs::state_near_bias};

void add_backward_cases(std::vector<OperatorCase>& cases) {
  const auto add = [&](const char* name, const std::function<Named()>& given,
                       const Accepted& accepted = {}) {
    cases.push_back(make("favor_attention_backward", name, given, accepted));
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
  add("packed", [] { return backward_of(packed("positive", true), {}); }, {kNear});
  add("near", [] { return backward_of(near_with_every_option(), kNearParts); });
  add("near packed", [] { return backward_of(near_packed(), kStateParts); });
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
  add("attention_map", "chosen", [] { return map_of(every_option()); }, {kPositions, kNear});
  add("attention_map", "near", [] { return map_of(near_with_every_option()); },
      {kPositions, kNearBlocks});
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
  Accepted causal = sampling, bidirectional = sampling, near = sampling;
  causal.push_back(kNear);
  bidirectional.insert(bidirectional.end(), {"q:size2=@(1|4|6)", kNear});
  near.push_back(kNearBlocks);
  cases.push_back(make(
      "approximation_quality", "causal", [] { return measured(every_option(), true); }, causal,
      true));
  cases.push_back(make(
      "approximation_quality", "bidirectional", [] { return measured(every_option(), false); },
      bidirectional, true));
  cases.push_back(make(
      "approximation_quality", "near", [] { return measured(near_with_every_option(), false); },
      near, true));
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
