#include "performer/core/temporary_file.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "tests/support/temporary_folder.h"

namespace performer {
namespace {

using testing::TemporaryFolder;

std::vector<std::string> names_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  return names;
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
  if (!names_in(folder.path()).empty()) GTEST_SKIP() << "this file system names every file";
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

}  // namespace
}  // namespace performer
