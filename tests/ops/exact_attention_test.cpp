#include "performer/ops/exact/attention.h"
#include "tests/support/message_of.h"
#include "tests/support/oracle.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace performer {
namespace {

using testing::kF64;
using testing::max_error;
using testing::message_of;

struct ExactInputs {
  Tensor q, k, v;
};

ExactInputs make_inputs(std::int64_t heads, std::int64_t key_heads, std::int64_t lq,
                        std::int64_t lk) {
  at::manual_seed(1);
  return {at::randn({2, heads, lq, 6}, kF64), at::randn({2, key_heads, lk, 6}, kF64),
          at::randn({2, key_heads, lk, 5}, kF64)};
}

// softmax(scale q k^T) v with an L x L matrix.
Tensor dense(const ExactInputs& in, double scale, const Tensor& allowed) {
  const std::int64_t group = in.q.size(1) / in.k.size(1);
  const Tensor k = in.k.repeat_interleave(group, 1), v = in.v.repeat_interleave(group, 1);
  const Tensor logits = at::matmul(in.q, k.transpose(-2, -1)) * scale;
  return at::matmul(logits.masked_fill(allowed.logical_not(), -INFINITY).softmax(-1), v);
}

Tensor causal_mask(std::int64_t length) { return at::ones({length, length}, at::kBool).tril(); }

TEST(ExactAttention, EqualsTheDenseSoftmax) {
  const ExactInputs in = make_inputs(4, 2, 7, 9);
  const Tensor all = at::ones({7, 9}, at::kBool);
  EXPECT_LT(max_error(exact_attention(in.q, in.k, in.v), dense(in, 1 / std::sqrt(6.0), all)),
            1e-14);
  ExactOptions options;
  options.scale = 0.9;
  EXPECT_LT(max_error(exact_attention(in.q, in.k, in.v, options), dense(in, 0.9, all)), 1e-14);
}

TEST(ExactAttention, CausalEqualsTheDenseSoftmaxForValuesOfAnyWidth) {
  ExactInputs in = make_inputs(4, 2, 9, 9);
  ExactOptions options;
  options.causality = Causality::kCausal;
  options.scale = 0.5;
  EXPECT_LT(max_error(exact_attention(in.q, in.k, in.v, options), dense(in, 0.5, causal_mask(9))),
            1e-14);
  in.v = at::cat({in.v, in.v.narrow(3, 0, 1)}, 3);  // as wide as q: the fused kernel
  EXPECT_LT(max_error(exact_attention(in.q, in.k, in.v, options), dense(in, 0.5, causal_mask(9))),
            1e-14);
}

TEST(ExactAttention, ManyBlocksOfRowsEqualOne) {
  at::manual_seed(2);
  const ExactInputs in{at::randn({1, 8, 1500, 4}, kF64), at::randn({1, 8, 1500, 4}, kF64),
                       at::randn({1, 8, 1500, 3}, kF64)};  // 174 rows to a block
  ExactOptions options;
  options.causality = Causality::kCausal;
  EXPECT_LT(
      max_error(exact_attention(in.q, in.k, in.v, options), dense(in, 0.5, causal_mask(1500))),
      1e-13);
}

TEST(ExactAttention, MaskedKeysChangeNothingWhateverTheyHold) {
  ExactInputs in = make_inputs(2, 2, 7, 9);
  ExactOptions options;
  options.key_mask = at::ones({2, 9}, at::kBool);
  options.key_mask.narrow(1, 5, 4).fill_(false);
  const ExactInputs kept{in.q, in.k.narrow(2, 0, 5), in.v.narrow(2, 0, 5)};
  in.k.narrow(2, 5, 4).fill_(NAN);
  in.v.narrow(2, 5, 4).fill_(NAN);
  EXPECT_LT(max_error(exact_attention(in.q, in.k, in.v, options),
                      exact_attention(kept.q, kept.k, kept.v)),
            1e-14);
}

TEST(ExactAttention, ARowWithoutKeysIsZeroWithFiniteGradients) {
  const ExactInputs in = make_inputs(2, 1, 9, 9);
  const Tensor q = in.q.clone().requires_grad_(true);
  ExactOptions options;
  options.causality = Causality::kCausal;
  options.key_mask = at::ones({2, 9}, at::kBool);
  options.key_mask.narrow(1, 0, 3).fill_(false);
  const Tensor out = exact_attention(q, in.k, in.v, options);
  EXPECT_EQ(out.narrow(2, 0, 3).abs().max().item<double>(), 0.0);
  EXPECT_GT(out.narrow(2, 3, 6).abs().min().item<double>(), 0.0);
  out.sum().backward();
  EXPECT_TRUE(q.grad().isfinite().all().item<bool>());
}

TEST(ExactAttention, KeyBiasAddsToTheLogitsAndMinusInfinityRemoves) {
  const ExactInputs in = make_inputs(4, 2, 7, 9);
  at::manual_seed(3);
  ExactOptions options;
  options.scale = 1.0;
  options.key_bias = at::randn({2, 2, 9}, kF64);
  // A key coordinate against a constant 1 in the query adds the same bias.
  const Tensor q = at::cat({in.q, at::ones({2, 4, 7, 1}, kF64)}, 3);
  const Tensor k = at::cat({in.k, options.key_bias.unsqueeze(3)}, 3);
  ExactOptions plain;
  plain.scale = 1.0;
  EXPECT_LT(
      max_error(exact_attention(in.q, in.k, in.v, options), exact_attention(q, k, in.v, plain)),
      1e-13);
  options.key_bias = at::zeros({2, 1, 9}, kF64);
  options.key_bias.narrow(2, 0, 4).fill_(-INFINITY);
  EXPECT_LT(max_error(exact_attention(in.q, in.k, in.v, options),
                      exact_attention(in.q, in.k.narrow(2, 4, 5), in.v.narrow(2, 4, 5), plain)),
            1e-14);
}

TEST(ExactAttention, KeepsTheDtypeAndServesEmptyLengths) {
  const ExactInputs in = make_inputs(2, 2, 4, 4);
  const auto half = [](const Tensor& t) { return t.to(at::kBFloat16); };
  EXPECT_EQ(exact_attention(half(in.q), half(in.k), half(in.v)).scalar_type(), at::kBFloat16);
  const ExactInputs empty = make_inputs(2, 2, 0, 0);
  EXPECT_EQ(exact_attention(empty.q, empty.k, empty.v).sizes(), at::IntArrayRef({2, 2, 0, 5}));
  EXPECT_EQ(exact_attention(in.q, empty.k, empty.v).abs().sum().item<double>(), 0.0);
}

TEST(ExactAttention, NamesWhatIsWrong) {
  const ExactInputs in = make_inputs(4, 2, 7, 9);
  const auto expect = [&](const ExactInputs& bad, const ExactOptions& options, const char* text) {
    const std::string message =
        message_of([&] { (void)exact_attention(bad.q, bad.k, bad.v, options); });
    EXPECT_NE(message.find(text), std::string::npos) << message;
  };
  ExactOptions causal, mask, bias, scale;
  causal.causality = Causality::kCausal;
  expect(in, causal, "exact_attention: causal attention needs q and k of one length, got q");
  mask.key_mask = at::ones({2, 8}, at::kBool);
  expect(in, mask, "key_mask must be [2, 9], got [2, 8]");
  bias.key_bias = at::zeros({2, 3, 9}, kF64);
  expect(in, bias, "key_bias must be [batch, heads, key length]");
  scale.scale = -1.0;
  expect(in, scale, "scale must be positive, got -1");
  expect({in.q[0], in.k, in.v}, {}, "q must be [batch, heads, length, dim], got [4, 7, 6]");
  expect({in.q, in.k.narrow(3, 0, 5), in.v}, {}, "k must be");
  expect({in.q, in.k, in.v.narrow(2, 0, 5)}, {}, "v must be");
  expect({in.q.narrow(1, 0, 3), in.k, in.v}, {}, "the 2 heads of k must divide the 3 heads of q");
  expect({in.q.to(at::kFloat), in.k, in.v}, {}, "k must have the dtype");
}

}  // namespace
}  // namespace performer
