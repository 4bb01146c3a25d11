// tests/cases, as C++ reads them. tests/python/test_cases.py says what they cover.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/support/op_cases.h"

namespace performer::testing {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> all_lines() {
  std::vector<std::string> lines;
  for (const auto& entry : fs::directory_iterator(PERFORMER_TEST_CASES)) {
    if (entry.path().extension() != ".txt") continue;
    std::ifstream file(entry.path());
    for (std::string line; std::getline(file, line);) lines.push_back(line);
  }
  return lines;
}

TEST(OpCases, EveryLineIsReadAsItIsWritten) {
  const auto lines = all_lines();
  ASSERT_GE(lines.size(), 600U);
  for (const auto& line : lines) EXPECT_EQ(line_of(parse_case(line)), line);
}

TEST(OpCases, EveryPartOfALineHasItsPlace) {
  const OpCase c = parse_case(
      "loglinear-causal-bf16-l7k8d2v3m5-b6h4.2.1-x10-near9-mask-key_bias-biases-key_projection"
      "-packed-strided-query_bias-state-sum");
  EXPECT_EQ(c.map, FeatureMap::kLoglinear);
  EXPECT_TRUE(c.causal());
  EXPECT_EQ(c.dtype, at::kBFloat16);
  EXPECT_EQ(std::vector({c.length, c.keys(), c.dim, c.values(), c.features}),
            std::vector<std::int64_t>({7, 8, 2, 3, 5}));
  EXPECT_EQ(std::vector({c.batch, c.heads, c.key_heads, c.head_parameters}),
            std::vector<std::int64_t>({6, 4, 2, 1}));
  EXPECT_EQ(c.magnitude, 10);
  EXPECT_EQ(c.near, 9);
  EXPECT_TRUE(c.mask && c.key_bias && c.biases && c.key_projection && c.packed && c.strided &&
              c.query_bias && c.initial_state);
  EXPECT_EQ(c.renormalize, Renormalize::kNo);
}

TEST(OpCases, AnotherSpellingIsRefused) {
  const std::string good = "positive-both-fp32-l1k1d2v2m3-b1h1.1.0";
  EXPECT_EQ(line_of(parse_case(good)), good);
  for (const std::string& line : std::vector<std::string>{
           good + "-masc", good + "-state-mask", good + "-x1",
           "positive-both-fp8-l1k1d2v2m3-b1h1.1.0", "positive-both-fp32-l01k1d2v2m3-b1h1.1.0",
           "positive-fp32-l1k1d2v2m3-b1h1.1.0"}) {
    EXPECT_THROW(parse_case(line), std::exception) << line;
  }
}

TEST(OpCases, TheOperatorAllowsEveryCall) {
  for (const auto& line : all_lines()) {
    const OpCase c = parse_case(line);
    const Inputs in = make_inputs(c, 0, at::kMeta);
    SCOPED_TRACE(line);
    Tensor out;
    EXPECT_NO_THROW(out = favor_attention(in.q, in.k, in.v, in.W, in.options));
    ASSERT_TRUE(out.defined());
    EXPECT_EQ(out.sizes(), at::IntArrayRef({c.batch, c.heads, c.length, c.values()}));
  }
}

}  // namespace
}  // namespace performer::testing
