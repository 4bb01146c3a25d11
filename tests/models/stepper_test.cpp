#include "performer/models/stepper.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "performer/ops/rotary/rotary.h"
#include "tests/models/tiny_model.h"
#include "tests/support/message_of.h"

namespace performer::models {
namespace {

using performer::testing::message_of;
using testing::make;
using testing::max_difference;
using testing::tiny;
using testing::tokens;

std::vector<std::int64_t> values(const Tensor& column) {
  const Tensor t = column.contiguous();
  return {t.const_data_ptr<std::int64_t>(), t.const_data_ptr<std::int64_t>() + t.numel()};
}

ModelConfig with_positions(const std::string& kind, const std::string& positions) {
  ModelConfig c = tiny(kind);
  c.positions = positions;
  return c;
}

TEST(Stepper, StepsAsDecodeDoes) {
  for (const char* kind : {"favor", "near", "local", "linear", "exact", "mean", "identity"}) {
    auto model = make(tiny(kind));
    const Tensor x = tokens(3, 9);
    DecodeState state;
    model->decode(x.narrow(1, 0, 4), state);
    Stepper stepper(model, state.reorder(at::arange(3)));
    for (std::int64_t t = 4; t < 9; ++t) {
      const Tensor want = model->decode(x.narrow(1, t, 1), state);
      EXPECT_EQ(max_difference(stepper.step(values(x.select(1, t))), want), 0) << kind << t;
    }
    EXPECT_FALSE(stepper.recorded());
    EXPECT_EQ(stepper.eager_reason(), "CUDA graphs need a GPU");
  }
}

TEST(Stepper, GoesOnWithTheRowsThatAreKept) {
  for (const char* kind : {"favor", "near"}) {
    auto model = make(tiny(kind));
    const Tensor x = tokens(4, 8);
    DecodeState state;
    model->decode(x.narrow(1, 0, 5), state);
    Stepper stepper(model, state.reorder(at::arange(4)));
    stepper.step(values(x.select(1, 5)));
    stepper.keep({3, 1});
    const Tensor got = stepper.step(values(x.select(1, 6).index_select(0, at::tensor({3, 1}))));
    model->decode(x.narrow(1, 5, 1), state);
    const Tensor want = model->decode(x.narrow(1, 6, 1), state).index_select(0, at::tensor({3, 1}));
    EXPECT_LE(max_difference(got, want), 1e-5) << kind;
  }
}

TEST(DecodeState, MayReadItsPlaceFromATensor) {
  for (const char* positions : {"rotary", "learned", "sinusoidal", "none"}) {
    auto model = make(with_positions("favor", positions));
    const Tensor x = tokens(2, 12);
    DecodeState plain, indexed;
    model->decode(x.narrow(1, 0, 6), plain);
    indexed = plain.reorder(at::arange(2));
    indexed.index = at::tensor({6}, at::kLong);
    for (std::int64_t t = 6; t < 12; ++t) {
      const Tensor want = model->decode(x.narrow(1, t, 1), plain);
      EXPECT_EQ(max_difference(model->decode(x.narrow(1, t, 1), indexed), want), 0) << positions;
    }
    EXPECT_EQ(indexed.index.item<std::int64_t>(), 12);
    EXPECT_EQ(indexed.position, 12);
    EXPECT_EQ(message_of([&] { model->decode(x.narrow(1, 0, 2), indexed); }),
              "decode: a state with an index takes one token at a time, got [2, 2]");
  }
}

TEST(Rotary, ComputesTheTurnsOfAnyPosition) {
  RotaryTables tables(8);
  const auto options = at::TensorOptions(at::kFloat);
  const Tensor rows = tables.turns(at::tensor({3, 100000}, at::kLong), options);
  EXPECT_TRUE(rows[0].equal(tables.turns(3, 1, options)[0]));
  EXPECT_TRUE(rows[1].equal(tables.turns(100000, 1, options)[0]));
}

TEST(Rotary, KeepsAStretchOfAStreamAndNotItsWholeLength) {
  RotaryTables tables(8);
  const auto options = at::TensorOptions(at::kFloat);
  const Tensor all = RotaryTables(8).turns(0, 5000, options);
  for (const std::int64_t first : {0, 7, 8, 1030, 1031, 1032, 4000, 3, 4996}) {
    for (const std::int64_t length : {1, 4}) {
      const Tensor rows = tables.turns(first, length, options);
      EXPECT_TRUE(rows.equal(all.narrow(0, first, length))) << first << " " << length;
    }
  }
  const auto bytes = tables.turns(1'000'000, 1, options).storage().nbytes();
  EXPECT_EQ(bytes, static_cast<std::size_t>(RotaryTables::kStreamRows) * 4 * sizeof(float) * 2);
}

TEST(Transformer, KnowsWhetherAStepCanBeRecorded) {
  EXPECT_TRUE(make(tiny("favor"))->recordable());
  EXPECT_TRUE(make(tiny("identity"))->recordable());
  EXPECT_FALSE(make(tiny("exact"))->recordable());
  EXPECT_FALSE(make(tiny("mean"))->recordable());
}

TEST(Transformer, RefusesAStateOfAnotherDraw) {
  auto model = make(tiny("favor"));
  DecodeState state;
  model->decode(tokens(1, 4), state);
  model->decode(tokens(1, 1), state);
  model->redraw(1);
  EXPECT_NE(message_of([&] { model->decode(tokens(1, 1), state); }).find("another W"),
            std::string::npos);
  model->redraw(0);
  model->decode(tokens(1, 1), state);
}

}  // namespace
}  // namespace performer::models
