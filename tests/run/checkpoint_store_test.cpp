#include "performer/run/checkpoint_store.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "performer/core/error.h"
#include "performer/core/file.h"
#include "performer/core/random.h"
#include "performer/core/sha256.h"
#include "performer/run/choose_checkpoint.h"
#include "tests/support/failure.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_checkpoint.h"

namespace performer::run {
namespace {

namespace fs = std::filesystem;
using namespace ::performer::testing;  // NOLINT: helpers of the tests
using Steps = std::vector<std::int64_t>;

// In place and without syncs: thousands of them must not wait for the disk.
void overwrite(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::app);
  std::ofstream(path, std::ios::binary | std::ios::in | std::ios::out) << bytes;
  fs::resize_file(path, bytes.size());
}

// Two checkpoints, and the files of the newer one with `latest`.
class DamagedStore : public ::testing::Test {
 protected:
  DamagedStore() : store_(folder_ / "run") {
    store_.save(100, tiny_content(100));
    store_.save(200, tiny_content(200));
    for (const auto& entry : fs::directory_iterator(checkpoint_folder(store_.run_folder(), 200))) {
      files_.push_back(entry.path());
    }
    files_.push_back(store_.run_folder() / "latest");
    std::sort(files_.begin(), files_.end());
  }

  // Writes `damaged` in place of the file and checks that everybody notices.
  void expect_noticed(const fs::path& file, const std::string& damaged) {
    const std::string bytes = read_file(file);
    overwrite(file, damaged);
    const bool pointer = file.filename() == "latest";
    const Failure failure = failure_of([&] { resolve_checkpoint(store_.run_folder()); });
    EXPECT_EQ(failure.code, ExitCode::kCorrupt);
    EXPECT_TRUE(failure.message.starts_with(file.string() + ": ")) << failure.message;
    const Opened opened = open_newest(store_);
    EXPECT_EQ(opened.step, pointer ? 200 : 100) << file;
    ASSERT_FALSE(opened.rejected.empty());
    EXPECT_TRUE(opened.rejected.front().starts_with(file.string() + ": ")) << file;
    overwrite(file, bytes);
  }

  TemporaryFolder folder_;
  CheckpointStore store_;
  std::vector<fs::path> files_;
};

TEST(CheckpointStoreTest, LoadsWhatWasSaved) {
  const TemporaryFolder folder;
  CheckpointStore store(folder / "run");
  EXPECT_EQ(open_newest(store).step, -1);
  store.save(7, tiny_content(7));
  EXPECT_EQ(open_newest(store).step, 7);
  EXPECT_TRUE(open_newest(store).rejected.empty());
  const Checkpoint checkpoint = resolve_checkpoint(folder / "run");
  EXPECT_EQ(checkpoint.folder(), folder / "run" / "checkpoints" / "step-000000007");
  EXPECT_EQ(checkpoint.config(), tiny_content(7).config_json);
  EXPECT_EQ(checkpoint.trainer(), tiny_content(7).trainer_json);
  EXPECT_EQ(checkpoint.tokenizer(), tiny_content(7).tokenizer);
  const auto moments = load_tensors(checkpoint.trainer_file());
  EXPECT_TRUE(moments.at(0).second.equal(tiny_content(7).trainer[0].second));
}

TEST(CheckpointStoreTest, TheSameContentGivesTheSameBytes) {
  const TemporaryFolder folder;
  CheckpointStore one(folder / "one");
  CheckpointStore two(folder / "two");
  one.save(5, tiny_content(5));
  two.save(5, tiny_content(5));
  EXPECT_EQ(read_file(folder / "one" / "latest"), read_file(folder / "two" / "latest"));
}

TEST(CheckpointStoreTest, SavingAStepAgainReplacesIt) {
  const TemporaryFolder folder;
  CheckpointStore store(folder.path());
  auto content = tiny_content(5);
  content.trainer_json = "{}";
  store.save(5, content);
  store.mark_best(5);
  store.save(5, tiny_content(5));
  EXPECT_EQ(resolve_checkpoint(folder.path()).trainer(), tiny_content(5).trainer_json);
  EXPECT_FALSE(fs::exists(folder / "best"));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder / "checkpoints"), {}), 1);
  store.mark_best(5);
  store.save(5, tiny_content(5));
  EXPECT_TRUE(fs::exists(folder / "best"));
}

TEST(CheckpointStoreTest, ResolvesBestThenLatestOrTheFolderItself) {
  const TemporaryFolder folder;
  CheckpointStore store(folder.path());
  EXPECT_EQ(failure_of([&] { resolve_checkpoint(folder.path()); }).code, ExitCode::kBadInput);
  EXPECT_EQ(failure_of([&] { resolve_checkpoint(folder / "none"); }).code, ExitCode::kBadInput);
  store.save(1, tiny_content(1));
  store.save(2, tiny_content(2));
  EXPECT_EQ(resolve_checkpoint(folder.path()).step(), 2);
  store.mark_best(1);
  EXPECT_EQ(resolve_checkpoint(folder.path()).step(), 1);
  EXPECT_EQ(resolve_checkpoint(checkpoint_folder(folder.path(), 2)).step(), 2);
  fs::remove(folder / "best");
  fs::remove(folder / "latest");
  EXPECT_EQ(failure_of([&] { resolve_checkpoint(folder.path()); }).code, ExitCode::kCorrupt);
}

TEST(CheckpointStoreTest, PruneKeepsTheNewestTheRegularTheBestAndTheLatest) {
  const TemporaryFolder folder;
  CheckpointStore store(folder.path());
  for (std::int64_t step = 1; step <= 8; ++step) {
    store.save(step, tiny_content(step));
  }
  store.mark_best(2);
  EXPECT_EQ(store.prune({.keep_last = 2, .keep_every = 4}), (Steps{1, 3, 5, 6}));
  EXPECT_EQ(store.steps(), (Steps{2, 4, 7, 8}));
  EXPECT_EQ(store.prune({.keep_last = 0}), (Steps{4, 7}));
  store.save(3, tiny_content(3));
  EXPECT_EQ(store.prune({.keep_last = 1}), Steps());
  store.forget_after(1);
  EXPECT_EQ(store.steps(), Steps{2});
}

TEST(CheckpointStoreTest, PruneKeepsWhatTheRunStillNeeds) {
  const TemporaryFolder folder;
  CheckpointStore store(folder.path());
  for (std::int64_t step = 1; step <= 5; ++step) store.save(step, tiny_content(step));
  EXPECT_EQ(store.prune({.keep_last = 1, .also = {2, 3}}), (Steps{1, 4}));
  EXPECT_EQ(store.steps(), (Steps{2, 3, 5}));
}

TEST(CheckpointStoreTest, GoingBackLeavesLatestOnACheckpointThatIsThere) {
  const TemporaryFolder folder;
  CheckpointStore store(folder.path());
  for (std::int64_t step = 1; step <= 4; ++step) store.save(step, tiny_content(step));
  store.go_back_to(*store.newest_good_up_to(3, {}));
  EXPECT_EQ(store.steps(), (Steps{1, 2, 3}));
  EXPECT_EQ(open_newest(store).step, 3);
  EXPECT_TRUE(open_newest(store).rejected.empty());
}

TEST(CheckpointStoreTest, ACheckpointTakenBackLeavesTheOneBeforeIt) {
  const TemporaryFolder folder;
  CheckpointStore store(folder.path());
  store.save(1, tiny_content(1));
  store.save(2, tiny_content(2));
  EXPECT_EQ(store.take_back(2), 1);
  EXPECT_EQ(store.steps(), Steps{1});
  EXPECT_EQ(resolve_checkpoint(folder.path()).step(), 1);
  EXPECT_EQ(store.take_back(1), std::nullopt);
  EXPECT_EQ(store.steps(), Steps());
  EXPECT_EQ(open_newest(store).step, -1);
}

TEST(CheckpointStoreTest, NumbersThatAreNotFiniteAreNoGoodCheckpoint) {
  const TemporaryFolder folder;
  CheckpointStore store(folder.path());
  store.save(1, tiny_content(1));
  for (const bool optimizer : {false, true}) {
    auto content = tiny_content(2);
    auto& poisoned = optimizer ? content.trainer.at(0).second : content.model.at(1).second;
    poisoned.view(-1)[1] = std::numeric_limits<double>::infinity();
    store.save(2, content);
    const Opened opened = open_newest(store);
    EXPECT_EQ(opened.step, 1);
    const std::string words = optimizer ? "\"moment\" is not finite in 1 of its 2 values"
                                        : "\"bias\" is not finite in 1 of its 3 values";
    EXPECT_NE(opened.rejected.at(0).find(words), std::string::npos) << opened.rejected[0];
  }
}

TEST(CheckpointStoreTest, PipesInThePlaceOfPointersAreNamedInsteadOfWaitedFor) {
  const TemporaryFolder folder;
  CheckpointStore store(folder.path());
  store.save(1, tiny_content(1));
  for (const std::string name : {"best", "latest"}) {
    fs::remove(folder / "best");
    fs::remove(folder / name);
    ASSERT_EQ(::mkfifo((folder / name).c_str(), 0600), 0);
    EXPECT_EQ(
        failure_of([&] { resolve_checkpoint(folder.path()); }).message,
        (folder / name).string() + ": not a file; take another one by --checkpoint: there are 1");
    EXPECT_EQ(failure_of([&] { store.prune({}); }).code, ExitCode::kCorrupt);
    store.mend_best(1, [](const Error&) {});
  }
  EXPECT_EQ(open_newest(store).step, 1);
  fs::remove(folder / "best");
  fs::create_directory(folder / "best");
  EXPECT_EQ(failure_of([&] { store.mend_best(1, [](const Error&) {}); }).code, ExitCode::kCorrupt);
  EXPECT_TRUE(fs::is_directory(folder / "best"));
}

TEST(CheckpointStoreTest, ASecondWriterIsRefused) {
  const TemporaryFolder folder;
  const CheckpointStore store(folder.path());
  EXPECT_EQ(failure_of([&] { const CheckpointStore other(folder.path()); }).code,
            ExitCode::kFailure);
}

TEST(CheckpointStoreTest, NamesThatLeaveTheFolderAreRefused) {
  const TemporaryFolder folder;
  CheckpointStore store(folder / "run");
  for (const std::string name :
       {"../file", "manifest.json", "trainer.json", "model.safetensors", ".hidden", ""}) {
    auto content = tiny_content(1);
    content.tokenizer = {{name, "x"}};
    EXPECT_NE(failure_of([&] { store.save(1, content); }).code, ExitCode::kOk) << name;
  }
  EXPECT_EQ(store.steps(), Steps());
  EXPECT_FALSE(fs::exists(folder / "run/checkpoints/file"));
}

TEST_F(DamagedStore, NoticesAndNamesAThousandFlippedBits) {
  const RandomStream random({.seed = 3}, 0);
  for (std::uint32_t trial = 0; trial < 1000; ++trial) {
    const auto bits = random.block(trial);
    const fs::path& file = files_[bits[0] % files_.size()];
    std::string bytes = read_file(file);
    bytes[bits[1] % bytes.size()] ^= static_cast<char>(1 << bits[2] % 8);
    ASSERT_NO_FATAL_FAILURE(expect_noticed(file, bytes));
  }
}

TEST_F(DamagedStore, NoticesAndNamesEveryTruncationAndAnyTail) {
  for (const fs::path& file : files_) {
    const std::string bytes = read_file(file);
    for (std::size_t length = 0; length < bytes.size(); ++length) {
      ASSERT_NO_FATAL_FAILURE(expect_noticed(file, bytes.substr(0, length)));
    }
    ASSERT_NO_FATAL_FAILURE(expect_noticed(file, bytes + "\n"));
    ASSERT_NO_FATAL_FAILURE(expect_noticed(file, bytes + std::string(2 << 20, ' ')));
  }
}

TEST_F(DamagedStore, NoticesMissingAndAddedFiles) {
  for (const fs::path& file : files_) {
    const std::string bytes = read_file(file);
    fs::remove(file);
    EXPECT_TRUE(open_newest(store_).rejected.at(0).starts_with(file.string() + ": missing"));
    overwrite(file, bytes);
  }
  const fs::path added = checkpoint_folder(store_.run_folder(), 200) / "extra";
  overwrite(added, "x");
  EXPECT_TRUE(open_newest(store_).rejected.at(0).starts_with(added.string() + ": not listed"));
}

TEST_F(DamagedStore, NoticesTheFilesOfAnotherCheckpoint) {
  const fs::path older = checkpoint_folder(store_.run_folder(), 100);
  const fs::path newer = checkpoint_folder(store_.run_folder(), 200);
  expect_noticed(newer / "model.safetensors", read_file(older / "model.safetensors"));
  fs::remove_all(newer);
  fs::copy(older, newer);
  const Failure failure = failure_of([&] { resolve_checkpoint(store_.run_folder()); });
  EXPECT_NE(failure.message.find("names another checkpoint"), std::string::npos);
}

TEST_F(DamagedStore, WithNothingGoodLeftItStopsInsteadOfStartingAnew) {
  overwrite(checkpoint_folder(store_.run_folder(), 100) / "config.json", "");
  overwrite(checkpoint_folder(store_.run_folder(), 200) / "config.json", "");
  EXPECT_EQ(failure_of([&] { open_newest(store_); }).code, ExitCode::kCorrupt);
}

TEST(ManifestTest, RefusesHostileNamesAndOtherVersions) {
  const std::string text = manifest_text({3, {{"a", 1, "00"}}});
  EXPECT_EQ(parse_manifest(text, "m").files.at(0).name, "a");
  EXPECT_EQ(failure_of([] {
              parse_manifest(manifest_text({3, {{"../a", 1, "00"}}}), "m");
            }).code,
            ExitCode::kCorrupt);
  const auto resealed = [&](const std::string& from, const std::string& to) {
    const auto with = [&](std::string where) {
      return where.replace(where.find(from), from.size(), to);
    };
    // The seal is the hash of the compact body.
    const std::string compact = R"({"format":"performer-checkpoint","version":4,"step":3,"files":[)"
                                R"({"name":"a","bytes":1,"sha256":"00"}]})";
    std::string other = with(text);
    const std::string hash = sha256_of(compact);
    return other.replace(other.find(hash), hash.size(), sha256_of(with(compact)));
  };
  EXPECT_EQ(failure_of([&] { parse_manifest(resealed("step", "stop"), "m"); }).code,
            ExitCode::kCorrupt);
  EXPECT_EQ(
      failure_of([&] { parse_manifest(resealed("performer-checkpoint", "other"), "m"); }).code,
      ExitCode::kBadInput);
}

TEST(ManifestTest, StepNamesHaveOneSpelling) {
  EXPECT_EQ(step_name(100), "step-000000100");
  EXPECT_EQ(parse_step_name(step_name(12'345'678'901)), 12'345'678'901);
  for (const auto* name : {"step-1", "step-0000000001", "step--00000001", "step-00000000x", "step-",
                           "latest", "step-99999999999999999999"}) {
    EXPECT_EQ(parse_step_name(name), std::nullopt) << name;
  }
}

}  // namespace
}  // namespace performer::run
