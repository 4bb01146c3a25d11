#include <gtest/gtest.h>

#include <functional>

#include "performer/ops/favor/step.h"
#include "tests/support/oracle.h"

namespace performer::testing {
namespace {

/// One wrong argument of an otherwise good call (q, k, v [2, 2, 65, 8], W [16, 8]), and what the
/// message must say: the argument's name and the value seen.
struct BadInput {
  std::string name;
  std::function<void(Inputs&)> spoil;
  std::vector<std::string> words;
};

void PrintTo(const BadInput& bad, std::ostream* out) { *out << bad.name; }

class FavorAttentionRefuses : public ::testing::TestWithParam<BadInput> {};

TEST_P(FavorAttentionRefuses, WithTheArgumentAndTheValueSeen) {
  Inputs in = make_inputs({});
  ASSERT_NO_THROW(favor_attention(in.q, in.k, in.v, in.W, in.options));
  GetParam().spoil(in);
  std::vector<std::string> words = GetParam().words;
  words.push_back("favor_attention: ");
  expect_throw_with([&] { favor_attention(in.q, in.k, in.v, in.W, in.options); }, words);
}

Tensor zeros(at::IntArrayRef sizes) { return at::zeros(sizes); }

void pack(Inputs& in, const Tensor& offsets) {
  for (Tensor* t : {&in.q, &in.k, &in.v}) *t = t->narrow(0, 0, 1);
  in.options.cu_seqlens_q = in.options.cu_seqlens_k = offsets;
}

FavorState state_of(const Inputs& in) {
  return favor_attention_with_state(in.q, in.k, in.v, in.W, in.options).second;
}

const std::vector<BadInput>& bad_tokens() {
  static const std::vector<BadInput> list{
      {"RankOfQ", [](Inputs& in) { in.q = in.q[0]; }, {"q must", "[2, 65, 8]"}},
      {"RankOfK", [](Inputs& in) { in.k = in.k[0]; }, {"k must", "[2, 65, 8]"}},
      {"RankOfV", [](Inputs& in) { in.v = in.v[0]; }, {"v must", "[2, 65, 8]"}},
      {"UndefinedV", [](Inputs& in) { in.v = Tensor(); }, {"v must be defined"}},
      {"BatchOfK",
       [](Inputs& in) {
         in.k = zeros({3, 2, 65, 8});
       },
       {"k", "[3, 2, 65, 8]"}},
      {"DimOfK",
       [](Inputs& in) {
         in.k = zeros({2, 2, 65, 7});
       },
       {"k", "[2, 2, 65, 7]"}},
      {"LengthOfV",
       [](Inputs& in) {
         in.v = zeros({2, 2, 64, 8});
       },
       {"v", "[2, 2, 64, 8]"}},
      {"HeadsOfV",
       [](Inputs& in) {
         in.v = zeros({2, 1, 65, 8});
       },
       {"v", "[2, 1, 65, 8]"}},
      {"HeadsThatDoNotDivide",
       [](Inputs& in) {
         in.k = in.v = zeros({2, 3, 65, 8});
       },
       {"heads", "k", "[2, 3, 65, 8]"}},
      {"DimZero",
       [](Inputs& in) {
         in.q = in.k = in.v = zeros({2, 2, 65, 0});
         in.W = zeros({16, 0});
       },
       {"q", "[2, 2, 65, 0]"}},
      {"IntegerQ", [](Inputs& in) { in.q = in.q.to(at::kInt); }, {"q", "Int"}},
      {"MixedDtypes", [](Inputs& in) { in.v = in.v.to(at::kHalf); }, {"v", "Half"}},
      {"DeviceOfK", [](Inputs& in) { in.k = in.k.to(at::kMeta); }, {"k", "meta"}},
      {"CausalWithOtherLength",
       [](Inputs& in) {
         in.options.causality = Causality::kCausal;
         in.k = in.v = zeros({2, 2, 64, 8});
       },
       {"causal", "[2, 2, 65, 8]", "[2, 2, 64, 8]"}},
  };
  return list;
}

const std::vector<BadInput>& bad_parameters() {
  static const std::vector<BadInput> list{
      {"NoProjection", [](Inputs& in) { in.W = Tensor(); }, {"W", "positive", "None"}},
      {"WidthOfW",
       [](Inputs& in) {
         in.W = zeros({16, 9});
       },
       {"W must", "[16, 9]"}},
      {"NoFeatures",
       [](Inputs& in) {
         in.W = zeros({0, 8});
       },
       {"W must", "[0, 8]"}},
      {"RankOfW", [](Inputs& in) { in.W = zeros({8}); }, {"W must", "[8]"}},
      {"HeadsOfW",
       [](Inputs& in) {
         in.W = zeros({3, 16, 8});
       },
       {"W must", "[3, 16, 8]"}},
      {"HalfW", [](Inputs& in) { in.W = in.W.to(at::kHalf); }, {"W must", "Half"}},
      {"DeviceOfW", [](Inputs& in) { in.W = in.W.to(at::kMeta); }, {"W must", "meta"}},
      {"RowsOfProjectionK",
       [](Inputs& in) {
         in.options.projection_k = zeros({15, 8});
       },
       {"projection_k", "[15, 8]"}},
      {"ProjectionKOfAGeneralisedMap",
       [](Inputs& in) {
         in.options.feature_map = FeatureMap::kRelu;
         in.options.projection_k = in.W;
       },
       {"projection_k", "relu"}},
      {"ProjectionKOfTrigonometric",
       [](Inputs& in) {
         in.options.feature_map = FeatureMap::kTrigonometric;
         in.options.projection_k = in.W;
       },
       {"projection_k", "trigonometric"}},
      {"SizeOfBiasQ", [](Inputs& in) { in.options.bias_q = zeros({15}); }, {"bias_q", "[15]"}},
      {"HeadsOfBiasK",
       [](Inputs& in) {
         in.options.bias_k = zeros({3, 16});
       },
       {"bias_k", "[3, 16]"}},
      {"BiasOfAGeneralisedMap",
       [](Inputs& in) {
         in.options.feature_map = FeatureMap::kElu1;
         in.options.bias_k = zeros({16});
       },
       {"bias_k", "elu1"}},
      {"EpsWithASoftmaxMap",
       [](Inputs& in) { in.options.eps = 0.25; },
       {"eps", "positive", "0.25"}},
      {"EpsNotANumber",
       [](Inputs& in) {
         in.options.feature_map = FeatureMap::kRelu;
         in.options.eps = std::nan("");
       },
       {"eps", "nan"}},
      {"ScaleZero", [](Inputs& in) { in.options.scale = 0.0; }, {"scale", "0"}},
      {"ScaleNegative", [](Inputs& in) { in.options.scale = -2.0; }, {"scale", "-2"}},
  };
  return list;
}

const std::vector<BadInput>& bad_keys_and_states() {
  static const std::vector<BadInput> list{
      {"LengthOfKeyMask",
       [](Inputs& in) {
         in.options.key_mask = zeros({2, 64}).to(at::kBool);
       },
       {"key_mask", "[2, 64]"}},
      {"DtypeOfKeyMask",
       [](Inputs& in) {
         in.options.key_mask = zeros({2, 65});
       },
       {"key_mask", "Float"}},
      {"LengthOfKeyBias",
       [](Inputs& in) {
         in.options.key_bias = zeros({2, 2, 64});
       },
       {"key_bias", "[2, 2, 64]"}},
      {"HeadsOfKeyBias",
       [](Inputs& in) {
         in.options.key_bias = zeros({2, 3, 65});
       },
       {"key_bias", "[2, 3, 65]"}},
      {"KeyBiasOfAGeneralisedMap",
       [](Inputs& in) {
         in.options.feature_map = FeatureMap::kRelu;
         in.options.key_bias = zeros({2, 2, 65});
       },
       {"key_bias", "relu"}},
      {"OnlyOneOfTheOffsets",
       [](Inputs& in) {
         pack(in, at::tensor({0, 65}, at::kInt));
         in.options.cu_seqlens_k = Tensor();
       },
       {"cu_seqlens_q", "cu_seqlens_k"}},
      {"FloatOffsets",
       [](Inputs& in) {
         pack(in, at::tensor({0.0f, 65.0f}));
       },
       {"cu_seqlens_q", "Float"}},
      {"OffsetsThatFall",
       [](Inputs& in) {
         pack(in, at::tensor({0, 40, 30, 65}, at::kInt));
       },
       {"cu_seqlens_q", "40", "30"}},
      {"OffsetsNotFromZero",
       [](Inputs& in) {
         pack(in, at::tensor({3, 65}, at::kInt));
       },
       {"cu_seqlens_q", "3"}},
      {"OffsetsBeyondTheEnd",
       [](Inputs& in) {
         pack(in, at::tensor({0, 66}, at::kInt));
       },
       {"cu_seqlens_q", "66"}},
      {"PackedBatch",
       [](Inputs& in) {
         const auto offsets = at::tensor({0, 65}, at::kInt);
         in.options.cu_seqlens_q = in.options.cu_seqlens_k = offsets;
       },
       {"q", "[2, 2, 65, 8]"}},
      {"CausalWithUnequalOffsets",
       [](Inputs& in) {
         pack(in, at::tensor({0, 30, 65}, at::kInt));
         in.options.cu_seqlens_k = at::tensor({0, 31, 65}, at::kInt);
         in.options.causality = Causality::kCausal;
       },
       {"causal", "cu_seqlens_q", "31"}},
      {"MaxSeqlenTooSmall",
       [](Inputs& in) {
         pack(in, at::tensor({0, 30, 65}, at::kInt));
         in.options.max_seqlen_q = 34;
       },
       {"max_seqlen", "34", "35"}},
      {"MaxSeqlenWithoutOffsets",
       [](Inputs& in) { in.options.max_seqlen_q = 34; },
       {"max_seqlen_q"}},
      {"StateOfAnotherSize",
       [](Inputs& in) {
         in.options.initial_state = state_of(in);
         in.options.initial_state.kv = zeros({2, 2, 17, 8});
       },
       {"initial_state", "[2, 2, 17, 8]"}},
      {"StateOfAnotherBatch",
       [](Inputs& in) {
         in.options.initial_state = state_of(in).reorder(at::tensor({0, 1, 0}, at::kLong));
       },
       {"initial_state", "[3, 2, 16, 8]"}},
      {"StateWithoutScale",
       [](Inputs& in) {
         in.options.initial_state = state_of(in);
         in.options.initial_state.log2_scale = Tensor();
       },
       {"initial_state", "log2_scale"}},
      {"StateOfAnotherProjection",
       [](Inputs& in) {
         in.options.initial_state = state_of(in);
         in.W = in.W + 1e-3;
       },
       {"initial_state"}},
      {"StateOfAnotherMap",
       [](Inputs& in) {
         in.options.initial_state = state_of(in);
         in.options.feature_map = FeatureMap::kLoglinear;
       },
       {"initial_state"}},
      {"StateOfAnotherScale",
       [](Inputs& in) {
         in.options.initial_state = state_of(in);
         in.options.scale = 1.0;
       },
       {"initial_state"}},
      {"StateOfAnotherKeyProjection",
       [](Inputs& in) {
         in.options.initial_state = state_of(in);
         in.options.projection_k = in.W + 1;
       },
       {"initial_state"}},
  };
  return list;
}

const auto kBadName = [](const auto& info) { return info.param.name; };

INSTANTIATE_TEST_SUITE_P(Tokens, FavorAttentionRefuses, ::testing::ValuesIn(bad_tokens()),
                         kBadName);
INSTANTIATE_TEST_SUITE_P(Parameters, FavorAttentionRefuses, ::testing::ValuesIn(bad_parameters()),
                         kBadName);
INSTANTIATE_TEST_SUITE_P(KeysAndStates, FavorAttentionRefuses,
                         ::testing::ValuesIn(bad_keys_and_states()), kBadName);

TEST(FeatureMapName, ThatIsUnknownIsRefusedWithTheKnownOnes) {
  expect_throw_with([] { parse_feature_map("postive"); }, {"feature_map", "postive", "positive"});
}

TEST(FavorStep, RefusesMoreThanOneToken) {
  const Inputs in = make_inputs({});
  expect_throw_with([&] { favor_step(in.q, in.k, in.v, in.W, {}, in.options); },
                    {"favor_step", "65"});
}

}  // namespace
}  // namespace performer::testing
