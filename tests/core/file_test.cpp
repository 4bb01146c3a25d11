#include "performer/core/file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "performer/core/error.h"
#include "performer/core/random_access_file.h"
#include "performer/core/sha256.h"
#include "tests/support/failure.h"
#include "tests/support/small_disk.h"
#include "tests/support/temporary_folder.h"

namespace performer {
namespace {

using ::performer::testing::Failure;
using ::performer::testing::failure_of;
using ::performer::testing::SmallDisk;
using ::performer::testing::TemporaryFolder;

std::int64_t num_entries(const std::filesystem::path& folder) {
  return std::distance(std::filesystem::directory_iterator(folder), {});
}

std::string text_of(const RandomAccessFile& file) {
  std::string text(static_cast<std::size_t>(file.size()), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

TEST(Sha256Test, KnownVectors) {
  EXPECT_EQ(sha256_of(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Sha256Test, PiecesGiveTheHashOfTheWholeAndFinishStartsAnew) {
  Sha256 hash;
  hash.update("a");
  hash.update("bc");
  EXPECT_EQ(hash.finish(), sha256_of("abc"));
  EXPECT_EQ(hash.finish(), sha256_of(""));
}

TEST(FileTest, WritesAndReadsBackAnyBytes) {
  const TemporaryFolder folder;
  std::string bytes(3'000'000, '\0');
  std::generate(bytes.begin(), bytes.end(),
                [i = 0]() mutable { return static_cast<char>(i++ * 7); });
  write_file_atomic(folder / "file", bytes);
  EXPECT_EQ(read_file(folder / "file"), bytes);
  EXPECT_EQ(text_of(RandomAccessFile(folder / "file")), bytes);
  EXPECT_EQ(sha256_of_file(folder / "file"), sha256_of(bytes));
  EXPECT_EQ(num_entries(folder.path()), 1);
}

TEST(FileTest, ReplacesAnOlderFile) {
  const TemporaryFolder folder;
  write_file_atomic(folder / "file", "long old text");
  AtomicFile file(folder / "file");
  file.writer().write("new");
  EXPECT_EQ(read_file(folder / "file"), "long old text");
  EXPECT_EQ(file.commit(), sha256_of("new"));
  EXPECT_EQ(read_file(folder / "file"), "new");
}

TEST(FileTest, WithoutCommitNothingChanges) {
  const TemporaryFolder folder;
  write_file_atomic(folder / "file", "old");
  {
    AtomicFile file(folder / "file");
    file.writer().write("new");
  }
  EXPECT_EQ(read_file(folder / "file"), "old");
  EXPECT_EQ(num_entries(folder.path()), 1);
}

TEST(FileTest, FullDiskKeepsTheOldFileAndLeavesNothing) {
  const TemporaryFolder folder;
  write_file_atomic(folder / "file", "old");
  const SmallDisk disk(1000);
  const Failure failure =
      failure_of([&] { write_file_atomic(folder / "file", std::string(1001, 'x')); });
  EXPECT_EQ(failure.code, ExitCode::kNoSpace);
  EXPECT_EQ(read_file(folder / "file"), "old");
  EXPECT_EQ(num_entries(folder.path()), 1);
}

TEST(FileTest, AFullDeviceIsCalledFull) {
  const Failure failure = failure_of([] { FileWriter("/dev/full").write("x"); });
  EXPECT_EQ(failure.code, ExitCode::kNoSpace);
  EXPECT_EQ(failure.message, "/dev/full: disk full (No space left on device); free some space");
}

TEST(FileTest, AFolderThatIsNotThereCannotBeWritten) {
  const TemporaryFolder folder;
  const Failure failure = failure_of([&] { write_file_atomic(folder / "none/file", "x"); });
  EXPECT_EQ(failure.code, ExitCode::kNoSpace);
  EXPECT_NE(failure.message.find("cannot be written: No such file"), std::string::npos);
}

TEST(FileTest, MissingFilesAndFoldersAreBadInput) {
  const TemporaryFolder folder;
  for (const auto& path : {folder / "none", folder.path()}) {
    EXPECT_EQ(failure_of([&] { read_file(path); }).code, ExitCode::kBadInput);
    EXPECT_EQ(failure_of([&] { const RandomAccessFile file(path); }).code, ExitCode::kBadInput);
  }
}

TEST(FileTest, ReadingStopsAtTheLimit) {
  const TemporaryFolder folder;
  write_file_atomic(folder / "file", "1234");
  EXPECT_EQ(read_file(folder / "file", 4), "1234");
  EXPECT_EQ(failure_of([&] { read_file(folder / "file", 3); }).code, ExitCode::kBadInput);
}

TEST(FileTest, FilesAreRegularOnesAndNothingElseIsWaitedFor) {
  const TemporaryFolder folder;
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  for (const std::filesystem::path& path : {folder / "pipe", std::filesystem::path("/dev/zero")}) {
    const Failure failure = failure_of([&] { read_file(path); });
    EXPECT_EQ(failure.code, ExitCode::kBadInput);
    EXPECT_EQ(failure.message, path.string() + ": a pipe or a device, where a file is needed");
    for (const auto& read : std::vector<std::function<void()>>{
             [&] { sha256_of_file(path); }, [&] { const RandomAccessFile file(path); }}) {
      EXPECT_EQ(failure_of(read).message, failure.message);
    }
  }
  EXPECT_EQ(failure_of([&] { read_file(folder.path()); }).message,
            folder.path().string() + ": a folder, where a file is needed");
  EXPECT_FALSE(read_file("/proc/self/status").empty());  // claims to be empty
}

}  // namespace
}  // namespace performer
