#include "performer/core/temporary_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "performer/core/error.h"
#include "tests/support/failure.h"
#include "tests/support/temporary_folder.h"

namespace performer {
namespace {

using testing::Failure;
using testing::failure_of;
using testing::TemporaryFolder;

std::vector<std::string> names_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  return names;
}

bool can_be_nameless(const std::filesystem::path& folder) {
#ifdef O_TMPFILE
  const FileDescriptor file(::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  return file.get() >= 0;
#else
  return false;
#endif
}

// Runs `work` in a process of its own, which is killed as by the system.
void killed_after(const std::function<void()>& work) {
  const pid_t child = ::fork();
  if (child == 0) {
    work();
    ::raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
}

TEST(TemporaryFile, OfAKilledProgramLeavesNothingWhereFilesNeedNoName) {
  const TemporaryFolder folder;
  killed_after([&] {
    AtomicFile file(folder / "a");
    file.writer().write("half");
  });
  const FileDescriptor probe = open_unnamed(folder / "probe");
  const TemporaryFile nameless(folder / "b");
  if (!can_be_nameless(folder.path())) GTEST_SKIP() << "this file system names every file";
  EXPECT_TRUE(names_in(folder.path()).empty());
}

TEST(TemporaryFile, OfAKilledProgramIsClearedAwayByTheNextOne) {
  const TemporaryFolder folder;
  killed_after([&] { const TemporaryFile file(folder / "a", Naming::kFirst); });
  killed_after([&] { new TemporaryFile(folder / "a", Naming::kFirst); });
  killed_after([&] { new TemporaryFile(folder / "a-1", Naming::kFirst); });
  ASSERT_EQ(names_in(folder.path()).size(), 2U) << "a file of `a`, and one of `a-1`";
  write_file_atomic(folder / ".tmp-a-words", "of somebody else");
  write_file_atomic(folder / "a", "new");
  EXPECT_EQ(names_in(folder.path()).size(), 3U);
  write_file_atomic(folder / "a-1", "new");
  EXPECT_EQ(names_in(folder.path()).size(), 3U);
  EXPECT_TRUE(std::filesystem::exists(folder / ".tmp-a-words"));
}

TEST(TemporaryFile, OfALivingProgramStays) {
  const TemporaryFolder folder;
  TemporaryFile slow(folder / "a", Naming::kFirst);
  write_file_atomic(folder / "a", "first");
  FileWriter writer(folder / "a", slow.duplicate());
  writer.write("second");
  writer.finish();
  slow.publish();
  EXPECT_EQ(read_file(folder / "a"), "second");
  EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"a"});
}

// One clears away what the other has named and not locked yet.
TEST(TemporaryFile, OfProgramsThatBeginAtOnceNoneLosesItsFile) {
  const TemporaryFolder folder;
  std::atomic<int> lost = 0;
  std::vector<std::thread> programs;
  for (int i = 0; i < 4; ++i) {
    programs.emplace_back([&] {
      for (int round = 0; round < 10'000; ++round) {
        TemporaryFile file(folder / "a", Naming::kFirst);
        if (failure_of([&] { file.publish(); }).code != ExitCode::kOk) ++lost;
      }
    });
  }
  for (auto& program : programs) program.join();
  EXPECT_EQ(lost, 0);
}

TEST(TemporaryFile, TakesTheTargetsPlaceUnderBothNamings) {
  for (const Naming naming : {Naming::kFirst, Naming::kLast}) {
    const TemporaryFolder folder;
    write_file_atomic(folder / "a", "old");
    {
      TemporaryFile dropped(folder / "a", naming);
      FileWriter(folder / "a", dropped.duplicate()).write("dropped");
    }
    EXPECT_EQ(read_file(folder / "a"), "old");
    TemporaryFile kept(folder / "a", naming);
    FileWriter(folder / "a", kept.duplicate()).write("new");
    kept.publish();
    EXPECT_EQ(read_file(folder / "a"), "new");
    EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"a"});
  }
}

TEST(TemporaryFile, RefusesAtOnceWhatItMustNotReplace) {
  const TemporaryFolder folder;
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  std::filesystem::create_directory(folder / "folder");
  std::filesystem::create_symlink("/dev/null", folder / "link");
  write_file_atomic(folder / "file", "old");
  std::filesystem::create_symlink("file", folder / "good");
  const auto said = [](const std::filesystem::path& path) {
    const Failure failure = failure_of([&] { const TemporaryFile file(path); });
    EXPECT_EQ(failure.code, ExitCode::kNoSpace) << path;
    return failure.message;
  };
  EXPECT_NE(said(folder / "pipe").find("pipe: is a pipe or a device"), std::string::npos);
  EXPECT_NE(said(folder / "link").find("link: is a pipe or a device"), std::string::npos);
  EXPECT_NE(said("/dev/null").find("is a pipe or a device"), std::string::npos);
  EXPECT_NE(said("/dev/stdout").find("is a pipe or a device"), std::string::npos);
  EXPECT_NE(said("/dev/fd/1").find("is a pipe or a device"), std::string::npos);
  EXPECT_NE(said(folder / "folder").find("folder: is a folder"), std::string::npos);
  EXPECT_NE(said(folder / std::string(248, 'n')).find("5 bytes too long"), std::string::npos);
  EXPECT_TRUE(std::filesystem::is_fifo(folder / "pipe"));
  write_file_atomic(folder / "good", "new");
  EXPECT_EQ(read_file(folder / "good"), "new");
  write_file_atomic(folder / std::string(243, 'n'), "as long as it may be");
}

}  // namespace
}  // namespace performer
