#include "performer/train/metrics_log.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "performer/core/crc32c.h"
#include "performer/core/error.h"
#include "performer/core/file.h"
#include "tests/support/failure.h"
#include "tests/support/small_disk.h"
#include "tests/support/temporary_folder.h"

namespace performer::train {
namespace {

using ::performer::testing::Failure;
using ::performer::testing::failure_of;
using ::performer::testing::SmallDisk;
using ::performer::testing::TemporaryFolder;
using Json = nlohmann::ordered_json;

class MetricsLogTest : public ::testing::Test {
 protected:
  MetricsLog open(std::int64_t last_step) {
    return {path_, last_step, [this](const std::string& problem) { warnings_.push_back(problem); }};
  }
  // What the log writes for a record.
  std::string line(const Json& record) {
    const auto path = folder_ / "lines";
    MetricsLog(path, -1, [](const std::string&) {}).append(record);
    return read_file(path);
  }
  std::string line(std::int64_t step) { return line({{"step", step}}); }
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

TEST_F(MetricsLogTest, WritesOneLinePerRecordAtOnceWithItsCheck) {
  MetricsLog log = open(-1);
  log.append({{"step", 1}, {"loss", 2.5}, {"note", "a\nb\xff"}});
  const std::string record = "{\"step\":1,\"loss\":2.5,\"note\":\"a\\nb\xef\xbf\xbd\"}";
  const auto check = fmt::format(",\"crc32c\":\"{:08x}\"}}\n", crc32c(record));
  EXPECT_EQ(read_file(path_), record.substr(0, record.size() - 1) + check);
  log.append({{"step", 2}, {"loss", std::numeric_limits<double>::quiet_NaN()}});
  EXPECT_NE(read_file(path_).find("\n{\"step\":2,\"loss\":null,"), std::string::npos);
}

TEST_F(MetricsLogTest, ResumeKeepsTheLinesUpToTheCheckpoint) {
  const std::string lines = line(1) + line(2) + line({{"step", 2}, {"valid", 1}});
  EXPECT_EQ(resumed(lines + line(3) + line(4), 2), lines);
  EXPECT_EQ(resumed(lines, 2), lines);
  EXPECT_EQ(resumed(lines, 9), lines);
  EXPECT_EQ(resumed(lines, 1), line(1));
  EXPECT_EQ(resumed(lines, -1), "");
  EXPECT_EQ(resumed("", 5), "");
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(MetricsLogTest, ResumeCutsALastLineAtEveryLength) {
  const std::string kept = line({{"step", 1}, {"loss", 10}});
  const std::string last = line({{"step", 2}, {"loss", 123}});
  for (std::size_t length = 0; length < last.size(); ++length) {
    EXPECT_EQ(resumed(kept + last.substr(0, length), 5), kept);
  }
  EXPECT_TRUE(warnings_.empty());
  EXPECT_EQ(resumed(kept + last + std::string(100, '\0') + "\n", 5), kept + last);
}

TEST_F(MetricsLogTest, AFlippedBitCostsNoOtherLineAndIsTold) {
  const std::string before = line(1), after = line(3) + line(4);
  const std::string middle = line({{"step", 2}, {"loss", 1.25}, {"tokens_per_second", 7}});
  for (std::size_t at = 0; at + 1 < middle.size(); ++at) {
    std::string damaged = middle;
    damaged[at] ^= 1;
    if (damaged[at] == '\n') continue;
    warnings_.clear();
    EXPECT_EQ(resumed(before + damaged + after + line(5), 4), before + damaged + after);
    ASSERT_EQ(warnings_.size(), 1) << at;
    EXPECT_TRUE(warnings_[0].starts_with(path_.string() + ":2: damaged: ")) << warnings_[0];
    EXPECT_TRUE(warnings_[0].ends_with("nothing is removed")) << warnings_[0];
  }
}

TEST_F(MetricsLogTest, ADamagedLineAtTheEndStaysUnlessItClaimsToBeNewer) {
  std::string damaged = line({{"step", 2}, {"loss", 1.25}});
  damaged[damaged.find("1.25")] = '7';
  EXPECT_EQ(resumed(line(1) + damaged, 2), line(1) + damaged);
  EXPECT_EQ(resumed(line(1) + damaged + line(2), 1), line(1));
  ASSERT_EQ(warnings_.size(), 2);
  EXPECT_TRUE(warnings_[1].ends_with("of these the last one is removed")) << warnings_[1];
}

TEST_F(MetricsLogTest, LinesWithoutAnEndAreRefused) {
  const std::string endless(17 << 20, 'x');
  EXPECT_EQ(failure_of([&] { resumed(endless, 2); }).code, ExitCode::kCorrupt);
}

TEST_F(MetricsLogTest, KnowsHowLongTheRunHadTaken) {
  const auto training = [&](std::int64_t step, double seconds) {
    return line({{"step", step}, {"seconds", seconds}, {"tokens_per_second", 1}});
  };
  const auto valid = line({{"step", 2}, {"seconds", 99}});
  write_file_atomic(path_, training(1, 2.5) + training(2, 4.5) + valid + training(3, 6.5));
  EXPECT_EQ(open(2).seconds(), 4.5);
  EXPECT_EQ(open(-1).seconds(), 0);
}

TEST_F(MetricsLogTest, AppendsAfterAResumeAndAfterGoingBack) {
  resumed(line(1) + line(2) + "{\"st", 1);
  MetricsLog log = open(1);
  log.append({{"step", 2}, {"new", 1}});
  log.append({{"step", 3}});
  const auto kept = line(1) + line({{"step", 2}, {"new", 1}});
  EXPECT_EQ(read_file(path_), kept + line(3));
  log.cut_after(2);
  log.append({{"step", 3}, {"again", true}});
  EXPECT_EQ(read_file(path_), kept + line({{"step", 3}, {"again", true}}));
}

TEST_F(MetricsLogTest, AFullDiskLosesWholeLinesAndWarnsOnce) {
  const auto first = line(1), last = line(4);
  MetricsLog log = open(-1);
  log.append({{"step", 1}});
  {
    const SmallDisk disk(first.size() + 4);
    log.append({{"step", 2}});
    log.append({{"step", 3}});
    EXPECT_EQ(read_file(path_), first);
  }
  EXPECT_EQ(log.num_lost(), 2);
  ASSERT_EQ(warnings_.size(), 1);
  EXPECT_TRUE(warnings_[0].starts_with(path_.string() + ": cannot be written: ")) << warnings_[0];
  log.append({{"step", 4}});
  EXPECT_EQ(read_file(path_), first + last);
}

TEST_F(MetricsLogTest, APipeInItsPlaceIsRefusedInsteadOfWaitedFor) {
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  const Failure failure = failure_of([&] { open(3); });
  EXPECT_EQ(failure.code, ExitCode::kNoSpace);
  EXPECT_TRUE(failure.message.starts_with(path_.string() + ": a pipe")) << failure.message;
}

TEST_F(MetricsLogTest, AFolderThatIsNotThereIsAnErrorAtTheStart) {
  path_ = folder_ / "none/metrics.jsonl";
  EXPECT_EQ(failure_of([&] { open(-1); }).code, ExitCode::kNoSpace);
}

}  // namespace
}  // namespace performer::train
