#include "performer/train/spike_guard.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace performer::train {
namespace {

run::GuardConfig config() {
  run::GuardConfig c;
  c.spike = "skip";
  c.spike_factor = 2;
  c.spike_window = 3;
  return c;
}

TEST(SpikeGuard, HasNoLimitUntilItsWindowIsFull) {
  SpikeGuard guard(config());
  for (std::int64_t step = 1; step <= 3; ++step) {
    EXPECT_TRUE(std::isinf(guard.limit(step)));
    guard.observe(step, 1.5);
  }
  EXPECT_TRUE(std::isinf(guard.limit(4)));  // knows steps 1 and 2
  EXPECT_DOUBLE_EQ(guard.limit(5), 3.0);
}

TEST(SpikeGuard, DecidesTheSameWhetherTheLastLossIsKnownOrNot) {
  SpikeGuard late(config()), early(config());
  for (std::int64_t step = 1; step <= 20; ++step) {
    // late: the loss of a step arrives after the limit of the next was asked for.
    if (step > 1) early.observe(step - 1, 1 + 1.0 / static_cast<double>(step - 1));
    EXPECT_EQ(late.limit(step), early.limit(step)) << step;
    if (step > 1) late.observe(step - 1, 1 + 1.0 / static_cast<double>(step - 1));
  }
}

TEST(SpikeGuard, GoesOnFromItsState) {
  SpikeGuard guard(config()), copy(config());
  for (std::int64_t step = 1; step <= 7; ++step) {
    guard.limit(step);
    guard.observe(step, 2.0 / static_cast<double>(step));
  }
  const auto state = nlohmann::ordered_json::parse(guard.state().dump());
  copy.load(JsonView(state, "trainer.json"));
  EXPECT_EQ(copy.limit(8), guard.limit(8));
  EXPECT_EQ(copy.limit(9), guard.limit(9));
  guard.reset();
  EXPECT_TRUE(std::isinf(guard.limit(10)));
}

TEST(SpikeGuard, OffHasNoLimit) {
  auto off = config();
  off.spike = "off";
  SpikeGuard guard(off);
  for (std::int64_t step = 1; step <= 9; ++step) guard.observe(step, 1.0);
  EXPECT_TRUE(std::isinf(guard.limit(20)));
}

}  // namespace
}  // namespace performer::train
