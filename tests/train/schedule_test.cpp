#include "performer/train/schedule.h"

#include <gtest/gtest.h>

#include <cmath>

namespace performer::train {
namespace {

double rate(const std::string& kind, std::int64_t step, std::int64_t warmup = 4,
            double final_ratio = 0.1) {
  return learning_rate({kind, warmup, final_ratio}, 2.0, step, 104);
}

TEST(Schedule, RisesInAStraightLineToTheTop) {
  for (const char* kind : {"constant", "linear", "cosine", "inverse_sqrt"}) {
    EXPECT_DOUBLE_EQ(rate(kind, 0), 0.5) << kind;
    EXPECT_DOUBLE_EQ(rate(kind, 3), 2.0) << kind;
  }
}

TEST(Schedule, EndsAtTheFinalRatio) {
  EXPECT_DOUBLE_EQ(rate("constant", 103), 2.0);
  EXPECT_NEAR(rate("linear", 103), 0.2, 1e-12);
  EXPECT_NEAR(rate("cosine", 103), 0.2, 1e-12);
  EXPECT_NEAR(rate("linear", 4), 2.0, 1e-12);
  EXPECT_NEAR(rate("cosine", 4), 2.0, 1e-12);
  EXPECT_GT(rate("cosine", 30), rate("linear", 30));  // above the line first, below it later
  EXPECT_LT(rate("cosine", 80), rate("linear", 80));
}

TEST(Schedule, FallsWithTheRootOfTheStep) {
  EXPECT_DOUBLE_EQ(rate("inverse_sqrt", 15), 1.0);
  EXPECT_DOUBLE_EQ(rate("inverse_sqrt", 63), 0.5);
  EXPECT_DOUBLE_EQ(rate("inverse_sqrt", 3, 0), 1.0);
}

}  // namespace
}  // namespace performer::train
