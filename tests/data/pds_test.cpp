#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "performer/core/file.h"
#include "performer/data/build.h"
#include "performer/data/pds_file.h"
#include "performer/data/pds_writer.h"
#include "performer/data/read_fasta.h"
#include "tests/support/failure.h"
#include "tests/support/gzip_file.h"
#include "tests/support/temporary_folder.h"

namespace performer::data {
namespace {

using performer::testing::failure_of;
using performer::testing::TemporaryFolder;
using performer::testing::write_gzip;

std::vector<std::vector<std::uint8_t>> random_sequences(std::size_t count, std::size_t longest) {
  std::mt19937 random(5);
  std::vector<std::vector<std::uint8_t>> all(count);
  for (auto& sequence : all) {
    sequence.resize(1 + random() % longest);
    for (auto& token : sequence) token = static_cast<std::uint8_t>(4 + random() % 25);
  }
  return all;
}

std::string write_pds(const std::string& path,
                      const std::vector<std::vector<std::uint8_t>>& sequences) {
  PdsWriter writer(path);
  for (const auto& sequence : sequences) writer.add(sequence);
  return writer.finish();
}

void read_everything(const std::string& path) {
  const PdsFile file(path);
  std::int64_t sum = 0;
  for (std::int64_t i = 0; i < file.size(); ++i) {
    for (const std::uint8_t token : file.tokens(i)) sum += token;
  }
  EXPECT_GT(sum, 0);
}

TEST(Pds, GivesBackWhatWasWritten) {
  const TemporaryFolder folder;
  const auto sequences = random_sequences(500, 2000);  // several blocks of checksums
  write_pds(folder.file("a.pds"), sequences);
  const PdsFile file(folder.file("a.pds"));
  ASSERT_EQ(file.size(), 500);
  for (std::int64_t i = 499; i >= 0; --i) {
    const auto tokens = file.tokens(i);
    const auto& expected = sequences[static_cast<std::size_t>(i)];
    ASSERT_TRUE(std::equal(tokens.begin(), tokens.end(), expected.begin(), expected.end())) << i;
  }
  EXPECT_TRUE(is_pds(folder.file("a.pds")));
  std::int64_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder.file(""))) {
    files += entry.exists() ? 1 : 0;
  }
  EXPECT_EQ(files, 1) << "temporary files are left";
}

TEST(Pds, EveryFlippedBitIsDetected) {
  const TemporaryFolder folder;
  write_pds(folder.file("a.pds"), random_sequences(7, 50));
  const std::string good = read_file(folder.file("a.pds"));
  for (std::size_t bit = 0; bit < 8 * good.size(); bit += 3) {
    std::string bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << (bit % 8)));
    const auto path = folder.write("bad.pds", bad);
    EXPECT_EQ(failure_of([&] { PdsFile file(path); }).code, ExitCode::kCorrupt) << bit;
  }
}

TEST(Pds, EveryTruncationIsDetected) {
  const TemporaryFolder folder;
  write_pds(folder.file("a.pds"), random_sequences(7, 50));
  const std::string good = read_file(folder.file("a.pds"));
  for (std::size_t size = 0; size < good.size(); ++size) {
    const auto path = folder.write("cut.pds", good.substr(0, size));
    const auto failure = failure_of([&] { PdsFile file(path); });
    EXPECT_EQ(failure.code, ExitCode::kCorrupt) << size << failure.message;
  }
}

TEST(Pds, SurvivesTwoThousandRandomMutations) {
  const TemporaryFolder folder;
  write_pds(folder.file("a.pds"), random_sequences(20, 60));
  const std::string good = read_file(folder.file("a.pds"));
  std::mt19937 random(2);
  for (int trial = 0; trial < 2000; ++trial) {
    std::string bytes = good;
    const std::size_t at = random() % bytes.size();
    const std::size_t size = std::min<std::size_t>(1 + random() % 16, bytes.size() - at);
    switch (random() % 3) {
      case 0:
        bytes.erase(at, size);
        break;
      case 1:
        bytes.insert(at, size, static_cast<char>(random()));
        break;
      default:
        for (std::size_t i = 0; i < size; ++i) bytes[at + i] = static_cast<char>(random());
    }
    if (bytes == good) continue;
    const auto path = folder.write("mutant.pds", bytes);
    const auto code = failure_of([&] { read_everything(path); }).code;
    EXPECT_TRUE(code == ExitCode::kCorrupt || code == ExitCode::kBadInput);
  }
}

TEST(Pds, AFileCutShortWhileItIsReadIsAnError) {
  const TemporaryFolder folder;
  const auto path = folder.file("a.pds");
  write_pds(path, random_sequences(500, 2000));
  const PdsFile file(path);
  for (const std::uintmax_t size : {std::filesystem::file_size(path) / 2, std::uintmax_t{100}}) {
    std::filesystem::resize_file(path, size);
    const auto failure = failure_of([&] { file.tokens(499); });
    EXPECT_EQ(failure.code, ExitCode::kCorrupt);
    EXPECT_NE(failure.message.find("while it is read"), std::string::npos) << failure.message;
  }
}

TEST(Pds, TokensOverwrittenAfterTheCheckNeverLeaveTheAlphabet) {
  const TemporaryFolder folder;
  const auto path = folder.file("a.pds");
  write_pds(path, random_sequences(5, 50));
  const PdsFile file(path);
  std::filesystem::resize_file(path, 40);
  std::filesystem::resize_file(path, 100'000);  // zeros, which are no letters
  EXPECT_EQ(failure_of([&] { file.tokens(4); }).code, ExitCode::kCorrupt);
}

TEST(Build, MakesTheSameSequencesAsReadingTheFasta) {
  const TemporaryFolder folder;
  const auto fasta = write_gzip(folder, "a.fasta.gz", ">a\nACD-E*\n>b\nac\n>c\n\n>d\nACDE\n");
  const auto result = build_pds(fasta, folder.file("a.pds"), {});
  EXPECT_EQ(result.counts.blank, 1);
  EXPECT_EQ(result.lengths.count, 3);
  EXPECT_EQ(result.lengths.total, 10);
  const PdsFile built(folder.file("a.pds"));
  const auto plain = read_fasta(fasta).sequences;
  ASSERT_EQ(built.size(), plain->size());
  for (std::int64_t i = 0; i < built.size(); ++i) {
    const auto a = built.tokens(i), b = plain->tokens(i);
    EXPECT_TRUE(std::equal(a.begin(), a.end(), b.begin(), b.end()));
  }
  const auto unique = build_pds(fasta, folder.file("b.pds"), {.deduplicate = true, .progress = {}});
  EXPECT_EQ(unique.counts.duplicates, 1);
  EXPECT_EQ(PdsFile(folder.file("b.pds")).size(), 2);
}

TEST(Build, LeavesTheOldFileWhereItFails) {
  const TemporaryFolder folder;
  const auto good = folder.write("good.fasta", ">a\nACD\n");
  const auto bad = folder.write("bad.fasta", ">a\nACD\n>b\nA1\n");
  const auto output = folder.file("a.pds");
  build_pds(good, output, {});
  const std::string before = read_file(output);
  EXPECT_EQ(failure_of([&] { build_pds(bad, output, {}); }).code, ExitCode::kBadInput);
  EXPECT_EQ(read_file(output), before);
  EXPECT_EQ(failure_of([&] { build_pds(good, good, {}); }).code, ExitCode::kUsage);
}

}  // namespace
}  // namespace performer::data
