#include <gtest/gtest.h>

#include <limits>

#include "tests/support/oracle.h"

namespace performer::testing {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// A copy of t whose positions from `begin` on along `axis` hold `value`.
Tensor replaced(const Tensor& t, std::int64_t axis, std::int64_t begin, double value) {
  if (!t.defined()) return t;
  Tensor copy = t.clone();
  copy.slice(axis, begin).fill_(value);
  return copy;
}

struct MapAndType {
  FeatureMap map;
  at::ScalarType dtype;
};

std::vector<MapAndType> maps_and_types() {
  std::vector<MapAndType> all;
  for (const FeatureMap map : all_feature_maps()) {
    for (const auto dtype : case_dtypes()) all.push_back({map, dtype});
  }
  return all;
}

class Causal : public ::testing::TestWithParam<MapAndType> {
 protected:
  OpCase problem() const {
    OpCase c{.map = GetParam().map, .causality = Causality::kCausal, .dtype = GetParam().dtype};
    c.length = 130;
    c.heads = 4;
    c.key_bias = takes_log_terms(c.map);
    return c;
  }
};

TEST_P(Causal, WhatComesAfterTLeavesOutputsUpToTBitEqual) {
  Inputs in = make_inputs(problem());
  in.options.key_mask = at::ones({2, 130}, at::kBool);
  in.options.key_mask.select(1, 3).fill_(false);
  const Tensor out = attend(in);
  for (const std::int64_t t : {0, 1, 17, 63, 64, 100}) {
    for (const double value : {1e4, -1e4, kInf, kNaN}) {
      Inputs changed = in;
      for (Tensor* tensor : {&changed.q, &changed.k, &changed.v}) {
        *tensor = replaced(*tensor, 2, t + 1, value);
      }
      changed.options.key_bias = replaced(in.options.key_bias, 2, t + 1, value);
      changed.options.key_mask = in.options.key_mask.clone();
      changed.options.key_mask.slice(1, t + 1, 130, 2).fill_(false);
      EXPECT_TRUE(bit_equal(attend(changed).slice(2, 0, t + 1), out.slice(2, 0, t + 1)))
          << "t = " << t << ", later values " << value;
    }
  }
}

TEST_P(Causal, WhatComesAfterTLeavesSumsAndOutputsWithoutAMaskBitEqual) {
  OpCase c = problem();
  c.key_bias = false;
  for (const Renormalize renormalize : {Renormalize::kNo, Renormalize::kYes}) {
    c.renormalize = renormalize;
    const Inputs in = make_inputs(c);
    const Tensor out = attend(in);
    for (const std::int64_t t : {0, 17, 64}) {
      for (const double value : {1e4, kNaN}) {
        Inputs changed = in;
        for (Tensor* tensor : {&changed.q, &changed.k, &changed.v}) {
          *tensor = replaced(*tensor, 2, t + 1, value);
        }
        EXPECT_TRUE(bit_equal(attend(changed).slice(2, 0, t + 1), out.slice(2, 0, t + 1)))
            << "t = " << t << ", later values " << value;
      }
    }
  }
}

TEST_P(Causal, ANaNInOneColumnOfVStaysInThatColumn) {
  Inputs in = make_inputs(problem());
  for (const Causality causality : {Causality::kBidirectional, Causality::kCausal}) {
    in.options.causality = causality;
    const Tensor out = attend(in);
    Inputs changed = in;
    changed.v = in.v.clone();
    changed.v.select(2, 70).select(-1, 5).fill_(kNaN);
    const Tensor got = attend(changed);
    for (std::int64_t column = 0; column < 8; ++column) {
      if (column == 5) continue;
      EXPECT_TRUE(bit_equal(got.select(-1, column), out.select(-1, column))) << column;
    }
    EXPECT_TRUE(got.select(-1, 5).slice(2, 70).isnan().all().item<bool>());
  }
}

TEST_P(Causal, MaskedKeysThatHoldNaNChangeNothing) {
  for (const Causality causality : {Causality::kBidirectional, Causality::kCausal}) {
    OpCase c = problem();
    c.causality = causality;
    Inputs in = make_inputs(c);
    in.options.key_mask = at::ones({2, 130}, at::kBool);
    in.options.key_mask.slice(1, 5, 9).fill_(false);
    in.options.key_mask.slice(1, 60, 70).fill_(false);
    in.options.key_mask[1].slice(0, 100).fill_(false);
    for (const double value : {kNaN, kInf, 1e4}) {
      Inputs changed = in;
      const Tensor removed = in.options.key_mask.logical_not().view({2, 1, 130, 1});
      changed.k = in.k.masked_fill(removed, value);
      changed.v = in.v.masked_fill(removed, value);
      if (in.options.key_bias.defined()) {
        changed.options.key_bias = in.options.key_bias.masked_fill(removed.squeeze(-1), value);
      }
      EXPECT_TRUE(bit_equal(attend(changed), attend(in))) << value;
      const Tensor dout = at::ones_like(in.q);
      const auto want = operator_gradients(in, dout, false);
      const auto got = operator_gradients(changed, dout, false);
      for (std::size_t n = 0; n < 3; ++n) EXPECT_TRUE(bit_equal(got[n], want[n])) << value << n;
      // Signed maps divide by almost nothing now and then, which leaves the range of fp16.
      if (!(has_signs(c.map) && c.dtype == at::kHalf)) {
        for (const Tensor& grad : got) EXPECT_TRUE(grad.isfinite().all().item<bool>());
      }
      EXPECT_TRUE(got[1].masked_select(removed).eq(0).all().item<bool>());
    }
  }
}

TEST_P(Causal, PackedSequencesDoNotSeeEachOther) {
  for (const Causality causality : {Causality::kBidirectional, Causality::kCausal}) {
    OpCase c = problem();
    c.causality = causality;
    c.packed = true;
    c.batch = 1;
    Inputs in = make_inputs(c);
    in.options.cu_seqlens_q = in.options.cu_seqlens_k = at::tensor({0, 20, 75, 130}, at::kInt);
    const Tensor out = attend(in);
    Inputs changed = in;
    for (Tensor* tensor : {&changed.q, &changed.k, &changed.v}) {
      *tensor = tensor->clone();
      tensor->slice(2, 20, 75).fill_(kNaN);
    }
    const Tensor got = attend(changed);
    EXPECT_TRUE(bit_equal(got.slice(2, 0, 20), out.slice(2, 0, 20)));
    EXPECT_TRUE(bit_equal(got.slice(2, 75), out.slice(2, 75)));
  }
}

INSTANTIATE_TEST_SUITE_P(EveryMapAndType, Causal, ::testing::ValuesIn(maps_and_types()),
                         [](const auto& info) {
                           return std::string(to_string(info.param.map)) + "_" +
                                  dtype_name(info.param.dtype);
                         });

TEST(FavorAttention, ASequenceAlonePaddedAndPackedAgrees) {
  const std::vector<std::int64_t> lengths{5, 64, 130};
  for (const FeatureMap map : all_feature_maps()) {
    if (has_signs(map)) continue;
    for (const Causality causality : {Causality::kBidirectional, Causality::kCausal}) {
      OpCase c{.map = map, .causality = causality, .batch = 3, .length = 130};
      const Inputs padded = make_inputs(c);
      Inputs masked = padded, packed = padded;
      masked.options.key_mask =
          at::arange(130).unsqueeze(0) < at::tensor(lengths, at::kLong).unsqueeze(1);
      const auto join = [&](const Tensor& t) {
        std::vector<Tensor> pieces;
        for (std::int64_t n = 0; n < 3; ++n) {
          pieces.push_back(t.narrow(0, n, 1).slice(2, 0, lengths[n]));
        }
        return at::cat(pieces, 2);
      };
      packed.q = join(padded.q), packed.k = join(padded.k), packed.v = join(padded.v);
      packed.options.cu_seqlens_q = packed.options.cu_seqlens_k =
          at::tensor({0, 5, 69, 199}, at::kInt);
      const Tensor of_masked = join(attend(masked)), of_packed = attend(packed);
      std::vector<Tensor> alone;
      for (std::int64_t n = 0; n < 3; ++n) {
        Inputs one = padded;
        for (Tensor* t : {&one.q, &one.k, &one.v}) *t = t->narrow(0, n, 1).slice(2, 0, lengths[n]);
        alone.push_back(attend(one));
      }
      EXPECT_LE(rms_error(of_masked, at::cat(alone, 2)), 1e-5) << to_string(map);
      EXPECT_LE(rms_error(of_packed, at::cat(alone, 2)), 1e-5) << to_string(map);
    }
  }
}

TEST(FavorAttention, AKeyBiasOfMinusInfinityRemovesTheKey) {
  for (const FeatureMap map :
       {FeatureMap::kPositive, FeatureMap::kLoglinear, FeatureMap::kHyperbolic}) {
    for (const Causality causality : {Causality::kBidirectional, Causality::kCausal}) {
      Inputs in = make_inputs({.map = map, .causality = causality, .key_bias = true});
      Inputs masked = in;
      in.options.key_bias.slice(2, 10, 20).fill_(-kInf);
      in.v.slice(2, 10, 20).fill_(kNaN);
      masked.options.key_mask = in.options.key_bias.select(1, 0).ne(-kInf);
      EXPECT_TRUE(bit_equal(attend(in), attend(masked))) << to_string(map);
    }
  }
}

}  // namespace
}  // namespace performer::testing
