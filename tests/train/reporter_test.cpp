#include "performer/train/reporter.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <sstream>
#include <string>

#include "tests/support/temporary_folder.h"

namespace performer::train {
namespace {

using ::performer::testing::TemporaryFolder;

StepReport report_of(std::int64_t step) {
  StepReport report;
  report.step = step;
  report.loss_sum = report.targets = report.tokens = 1;
  return report;
}

TEST(Reporter, TellsTheTimeLeftOfARunThatWentBackBehindItsStart) {
  const TemporaryFolder folder;
  run::TrainConfig config;
  config.steps = 10;
  config.log_every = 1;
  Reporter reporter(folder.path(), config);
  reporter.start_after(5);
  ::testing::internal::CaptureStderr();
  reporter.add(report_of(6));
  reporter.cut_after(2);
  for (std::int64_t step = 3; step <= 7; ++step) reporter.add(report_of(step));
  std::istringstream said(::testing::internal::GetCapturedStderr());
  int lines = 0;
  for (std::string line; std::getline(said, line); ++lines) {
    const auto left = line.substr(line.find("tokens/s  ") + 10);
    EXPECT_TRUE(left[0] >= '0' && left[0] <= '9') << line;
    EXPECT_LT(left.size(), 15U) << line;  // "0 s left", and on a slow machine "59 m 59 s left"
  }
  EXPECT_EQ(lines, 6);
}

}  // namespace
}  // namespace performer::train
