#include "performer/run/choose_checkpoint.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "performer/core/error.h"
#include "performer/run/checkpoint_store.h"
#include "tests/support/failure.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_checkpoint.h"

namespace performer::run {
namespace {

using ::performer::testing::Failure;
using ::performer::testing::failure_of;
using ::performer::testing::TemporaryFolder;
using ::performer::testing::tiny_content;

/// A run with checkpoints of steps 10, 20 and 30, of which 20 is the best.
class ChooseCheckpointTest : public ::testing::Test {
 protected:
  ChooseCheckpointTest() : store_(folder_.path()) {
    for (const std::int64_t step : {10, 20, 30}) store_.save(step, tiny_content(step));
    store_.mark_best(20);
  }

  std::int64_t step_of(const std::string& which) const {
    return choose_checkpoint(folder_.path(), which).checkpoint.step();
  }
  Failure refused(const std::string& which) const {
    return failure_of([&] { choose_checkpoint(folder_.path(), which); });
  }

  TemporaryFolder folder_;
  CheckpointStore store_;
};

TEST_F(ChooseCheckpointTest, TakesTheBestTheLatestOrAStep) {
  EXPECT_EQ(step_of(""), 20);
  EXPECT_EQ(step_of("best"), 20);
  EXPECT_EQ(step_of("latest"), 30);
  EXPECT_EQ(step_of("10"), 10);
}

TEST_F(ChooseCheckpointTest, SaysWhichOneItIsAndWhetherTheRunWentOn) {
  const auto best = choose_checkpoint(folder_.path(), "").text();
  EXPECT_NE(best.find("step 20, the best of validation; the run went on to step 30"),
            std::string::npos)
      << best;
  const auto latest = choose_checkpoint(folder_.path(), "latest").text();
  EXPECT_TRUE(latest.ends_with("step 30, the latest")) << latest;
}

TEST_F(ChooseCheckpointTest, AStepThatIsNotThereNamesThoseThatAre) {
  const Failure failure = refused("15");
  EXPECT_EQ(failure.code, ExitCode::kBadInput);
  EXPECT_NE(failure.message.find("no checkpoint of step 15; there are 10, 20, 30"),
            std::string::npos)
      << failure.message;
}

TEST_F(ChooseCheckpointTest, AnotherWordIsAnErrorOfUse) {
  for (const char* word : {"newest", "-1", "1e3", "20 ", "../20", "99999999999999999999"}) {
    EXPECT_EQ(refused(word).code, ExitCode::kUsage) << word;
  }
  const auto home = checkpoint_folder(folder_.path(), 10);
  EXPECT_EQ(failure_of([&] { choose_checkpoint(home, "latest"); }).code, ExitCode::kUsage);
  EXPECT_EQ(choose_checkpoint(home, "").checkpoint.step(), 10);
}

TEST_F(ChooseCheckpointTest, WithoutABestTheLatestIsTakenAndABestRefused) {
  std::filesystem::remove(folder_ / "best");
  EXPECT_EQ(step_of(""), 30);
  EXPECT_EQ(refused("best").code, ExitCode::kBadInput);
}

}  // namespace
}  // namespace performer::run
