#include "performer/train/metrics_log.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "performer/core/error.h"
#include "performer/core/file.h"
#include "tests/support/error_of.h"
#include "tests/support/small_disk.h"
#include "tests/support/temporary_folder.h"

namespace performer::train {
namespace {

using ::performer::testing::error_of;
using ::performer::testing::SmallDisk;
using ::performer::testing::TemporaryFolder;
using Json = nlohmann::ordered_json;

class MetricsLogTest : public ::testing::Test {
 protected:
  MetricsLog open(std::int64_t last_step) {
    return {path_, last_step, [this](const std::string& problem) { warnings_.push_back(problem); }};
  }
  // The file after a resume at `last_step` from `text`.
  std::string resumed(const std::string& text, std::int64_t last_step) {
    write_file_atomic(path_, text);
    open(last_step);
    return read_file(path_);
  }

  TemporaryFolder folder_;
  std::filesystem::path path_ = folder_ / "metrics.jsonl";
  std::vector<std::string> warnings_;
};

TEST_F(MetricsLogTest, WritesOneLinePerRecordAtOnce) {
  MetricsLog log = open(-1);
  log.append({{"step", 1}, {"loss", 2.5}, {"note", "a\nb\xff"}});
  EXPECT_EQ(read_file(path_), "{\"step\":1,\"loss\":2.5,\"note\":\"a\\nb\xef\xbf\xbd\"}\n");
  log.append({{"step", 2}, {"loss", std::numeric_limits<double>::quiet_NaN()}});
  EXPECT_TRUE(read_file(path_).ends_with("\n{\"step\":2,\"loss\":null}\n"));
}

TEST_F(MetricsLogTest, ResumeKeepsTheLinesUpToTheCheckpoint) {
  const std::string lines = "{\"step\":1}\n{\"step\":2}\n{\"step\":2,\"valid\":1}\n";
  EXPECT_EQ(resumed(lines + "{\"step\":3}\n{\"step\":4}\n", 2), lines);
  EXPECT_EQ(resumed(lines, 2), lines);
  EXPECT_EQ(resumed(lines, 9), lines);
  EXPECT_EQ(resumed(lines, 1), "{\"step\":1}\n");
  EXPECT_EQ(resumed(lines, -1), "");
  EXPECT_EQ(resumed("", 5), "");
}

TEST_F(MetricsLogTest, ResumeCutsALastLineAtEveryLength) {
  const std::string kept = "{\"step\":1,\"loss\":10}\n";
  const std::string last = "{\"step\":2,\"loss\":123}\n";
  for (std::size_t length = 0; length < last.size(); ++length) {
    EXPECT_EQ(resumed(kept + last.substr(0, length), 5), kept);
  }
  EXPECT_EQ(resumed(kept + last + std::string(100, '\0') + "\n", 5), kept + last);
}

TEST_F(MetricsLogTest, ADamagedLineDoesNotCostTheOnesAfterIt) {
  const std::string lines = "{\"step\":1}\nx{\"step\":2}\n{\"step\":3}\n";
  EXPECT_EQ(resumed(lines + "[]\n", 3), lines);
}

TEST_F(MetricsLogTest, AppendsAfterAResumeAndAfterGoingBack) {
  resumed("{\"step\":1}\n{\"step\":2}\n{\"st", 1);
  MetricsLog log = open(1);
  log.append({{"step", 2}, {"new", 1}});
  log.append({{"step", 3}});
  EXPECT_EQ(read_file(path_), "{\"step\":1}\n{\"step\":2,\"new\":1}\n{\"step\":3}\n");
  log.cut_after(2);
  log.append({{"step", 3}, {"again", true}});
  EXPECT_EQ(read_file(path_),
            "{\"step\":1}\n{\"step\":2,\"new\":1}\n{\"step\":3,\"again\":true}\n");
}

TEST_F(MetricsLogTest, AFullDiskLosesWholeLinesAndWarnsOnce) {
  MetricsLog log = open(-1);
  log.append({{"step", 1}});
  {
    const SmallDisk disk(15);
    log.append({{"step", 2}});
    log.append({{"step", 3}});
    EXPECT_EQ(read_file(path_), "{\"step\":1}\n");
  }
  EXPECT_EQ(log.num_lost(), 2);
  ASSERT_EQ(warnings_.size(), 1);
  EXPECT_TRUE(warnings_[0].starts_with(path_.string() + ": cannot be written: ")) << warnings_[0];
  log.append({{"step", 4}});
  EXPECT_EQ(read_file(path_), "{\"step\":1}\n{\"step\":4}\n");
}

TEST_F(MetricsLogTest, AFolderThatIsNotThereIsAnErrorAtTheStart) {
  path_ = folder_ / "none/metrics.jsonl";
  EXPECT_EQ(error_of([&] { open(-1); }).code(), ExitCode::kNoSpace);
}

}  // namespace
}  // namespace performer::train
