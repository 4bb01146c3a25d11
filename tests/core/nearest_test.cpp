#include "performer/core/nearest.h"

#include <gtest/gtest.h>

namespace performer {
namespace {

TEST(Nearest, FindsTheWordThatWasMeant) {
  const std::vector<std::string> commands{"train", "eval", "generate", "data", "bench"};
  EXPECT_EQ(nearest_name("trian", commands), "train");
  EXPECT_EQ(nearest_name("evaluate", commands), "");
  EXPECT_EQ(nearest_name("genrate", commands), "generate");
  EXPECT_EQ(nearest_name("xyz", commands), "");
  EXPECT_EQ(nearest_name("", commands), "");
  EXPECT_EQ(did_you_mean("trian", commands), "; did you mean train?");
  EXPECT_EQ(did_you_mean("xyz", commands), "");
}

TEST(Nearest, ComparesTheLastPartsOfDottedNames) {
  const std::vector<std::string> keys{"model.layers", "optimizer.eps", "optimizer.rate",
                                      "data.length"};
  EXPECT_EQ(nearest_name("layers", keys), "model.layers");
  EXPECT_EQ(nearest_name("model.layer", keys), "model.layers");
  EXPECT_EQ(nearest_name("modle.layres", keys), "model.layers");
  EXPECT_EQ(nearest_name("model.length", keys), "data.length");
  EXPECT_EQ(nearest_name("optimizer.lr", keys), "");
}

TEST(Nearest, CallsNoOtherWordNear) {
  const std::vector<std::string> keys{"model.attention.eps", "data.ood", "train.batch",
                                      "optimizer.rate", "schedule.kind"};
  for (const char* name : {"train.epochs", "optimizer.foo", "data.path", "optimizer.name"}) {
    EXPECT_EQ(nearest_name(name, keys), "") << name;
  }
}

TEST(Nearest, TakesNoTimeOverLongWords) {
  EXPECT_EQ(nearest_name(std::string(10'000'000, 'a'), {std::string(10'000'000, 'a')}), "");
}

}  // namespace
}  // namespace performer
