// Saves that are killed, or find the disk full, at every one of their system calls. This program's
// own write, fsync, rename and renameat2 take the place of the C library's for the whole process.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>

#include "performer/core/error.h"
#include "performer/core/file.h"
#include "performer/run/checkpoint_store.h"
#include "tests/support/failure.h"
#include "tests/support/small_disk.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_checkpoint.h"

namespace {

enum class Fault { kNone, kKill, kFull };
Fault g_fault = Fault::kNone;
int g_calls_left = 0;
bool g_exchange_works = true;
bool g_short_writes = false;

// True where this one call is to fail; does not return where it is to kill.
bool strikes() {
  if (g_fault == Fault::kNone || g_calls_left-- != 0) {
    return false;
  }
  if (g_fault == Fault::kKill) {
    ::kill(::getpid(), SIGKILL);
  }
  errno = ENOSPC;
  return true;
}

int result_of(long result) { return static_cast<int>(result); }

}  // namespace

extern "C" {

ssize_t write(int fd, const void* bytes, size_t count) {
  if (g_fault != Fault::kNone && g_calls_left == 0) {
    ::syscall(SYS_write, fd, bytes, count / 2);
  }
  const size_t accepted = g_short_writes ? (count + 1) / 2 : count;
  return strikes() ? -1 : ::syscall(SYS_write, fd, bytes, accepted);
}

// A kill loses nothing that was written: no need to wait for the disk here.
int fsync(int) { return strikes() ? -1 : 0; }

int rename(const char* from, const char* to) noexcept {
  return strikes() ? -1 : result_of(::syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}

int renameat2(int from_folder, const char* from, int to_folder, const char* to,
              unsigned int flags) noexcept {
  if (!g_exchange_works) {
    errno = EINVAL;
    return -1;
  }
  return strikes() ? -1
                   : result_of(::syscall(SYS_renameat2, from_folder, from, to_folder, to, flags));
}

}  // extern "C"

namespace performer::run {
namespace {

namespace fs = std::filesystem;
using namespace ::performer::testing;  // NOLINT: helpers of the tests

constexpr int kMoreCallsThanASaveMakes = 100;

// Saves in a child process that dies at the given call; false when the save came to its end before.
bool save_killed_at(int call, const fs::path& run, std::int64_t step) {
  const pid_t child = ::fork();
  if (child == 0) {
    CheckpointStore store(run);
    g_calls_left = call;
    g_fault = Fault::kKill;
    store.save(step, tiny_content(step));
    ::_exit(0);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
  return WIFSIGNALED(status);
}

// Kills at every call of a save of `step` over checkpoints 1 and 2.
void expect_survival(std::int64_t step) {
  int call = 0;
  bool killed = true;
  for (; killed && call < kMoreCallsThanASaveMakes; ++call) {
    const TemporaryFolder folder;
    {
      CheckpointStore store(folder.path());
      store.save(1, tiny_content(1));
      store.save(2, tiny_content(2));
    }
    killed = save_killed_at(call, folder.path(), step);
    CheckpointStore store(folder.path());
    const Opened opened = open_newest(store);
    EXPECT_TRUE(opened.step == 2 || (opened.step == step)) << call;
    EXPECT_TRUE(opened.rejected.empty()) << opened.rejected.front();
    if (!killed) {
      EXPECT_EQ(opened.step, step);
    }
    for (const auto& entry : fs::directory_iterator(folder / "checkpoints")) {
      EXPECT_NO_THROW(Checkpoint::open(entry.path())) << entry.path();
    }
    store.save(step, tiny_content(step));
    EXPECT_EQ(open_newest(store).step, step);
  }
  EXPECT_GT(call, 15);
  EXPECT_LT(call, kMoreCallsThanASaveMakes);
}

TEST(CheckpointKillTest, EveryKillOfASaveLeavesAGoodCheckpoint) { expect_survival(3); }

TEST(CheckpointKillTest, EveryKillOfASaveOverTheLatestLeavesAGoodCheckpoint) { expect_survival(2); }

TEST(CheckpointKillTest, AlsoWhereFoldersCannotBeExchangedAtOnce) {
  g_exchange_works = false;
  expect_survival(2);
  g_exchange_works = true;
}

TEST(CheckpointKillTest, AKillInTheFirstSaveLeavesARunWithoutCheckpoints) {
  const TemporaryFolder folder;
  EXPECT_TRUE(save_killed_at(3, folder.path(), 1));
  EXPECT_FALSE(fs::is_empty(folder / "checkpoints"));
  const CheckpointStore store(folder.path());
  EXPECT_TRUE(fs::is_empty(folder / "checkpoints"));
  EXPECT_EQ(open_newest(store).step, -1);
}

// Fails at every call of a save of `step` over checkpoints 1 and 2.
void expect_recovery(std::int64_t step) {
  const TemporaryFolder folder;
  CheckpointStore store(folder.path());
  store.save(1, tiny_content(1));
  store.save(2, tiny_content(2));
  bool failed = true;
  for (int call = 0; failed && call < kMoreCallsThanASaveMakes; ++call) {
    g_calls_left = call;
    g_fault = Fault::kFull;
    const Failure failure = failure_of([&] { store.save(step, tiny_content(step)); });
    g_fault = Fault::kNone;
    failed = failure.code != ExitCode::kOk;
    EXPECT_TRUE(!failed || failure.code == ExitCode::kNoSpace) << failure.message;
    EXPECT_TRUE(!failed || failure.message.find("disk full") != std::string::npos);
    const Opened opened = open_newest(store);
    EXPECT_TRUE(opened.step == step || (failed && opened.step == 2)) << call;
    EXPECT_TRUE(opened.rejected.empty()) << call;
    for (const auto& entry : fs::directory_iterator(folder / "checkpoints")) {
      EXPECT_TRUE(parse_step_name(entry.path().filename().string())) << entry.path();
    }
  }
  EXPECT_FALSE(failed);
  EXPECT_EQ(open_newest(store).step, step);
}

TEST(CheckpointKillTest, AFullDiskAtAnyCallKeepsTheOldOnesAndALaterSaveWorks) {
  expect_recovery(2);
  expect_recovery(3);
  g_exchange_works = false;
  expect_recovery(2);
  g_exchange_works = true;
}

TEST(CheckpointKillTest, WritesThatTakeOnlyPartOfTheBytesAreContinued) {
  const TemporaryFolder folder;
  CheckpointStore store(folder.path());
  g_short_writes = true;
  store.save(1, tiny_content(1));
  g_short_writes = false;
  EXPECT_EQ(open_newest(store).step, 1);
  EXPECT_TRUE(open_newest(store).rejected.empty());
}

TEST(CheckpointKillTest, FilesThatMayNotGrowAreReportedLikeAFullDisk) {
  const TemporaryFolder folder;
  CheckpointStore store(folder.path());
  store.save(1, tiny_content(1));
  const Failure failure = failure_of([&] {
    const SmallDisk disk(100);
    store.save(2, tiny_content(2));
  });
  EXPECT_EQ(failure.code, ExitCode::kNoSpace);
  EXPECT_EQ(open_newest(store).step, 1);
  EXPECT_EQ(store.steps().size(), 1);
}

}  // namespace
}  // namespace performer::run
