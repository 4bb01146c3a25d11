#include "performer/data/byte_source.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <thread>

#include "performer/core/file.h"
#include "performer/data/build.h"
#include "performer/data/dataset.h"
#include "performer/data/file_kind.h"
#include "performer/data/pds_file.h"
#include "performer/data/read_fasta.h"
#include "performer/data/tsv.h"
#include "tests/support/failure.h"
#include "tests/support/gzip_file.h"
#include "tests/support/temporary_folder.h"

namespace performer::data {
namespace {

using performer::testing::failure_of;
using performer::testing::TemporaryFolder;
using performer::testing::write_gzip;

// A pipe that a thread fills, under the name a shell gives to <(...).
class FilledPipe {
 public:
  explicit FilledPipe(std::string content) {
    EXPECT_EQ(::pipe(ends_), 0);
    writer_ = std::thread([this, content = std::move(content)] {
      for (std::size_t at = 0; at < content.size();) {
        const ssize_t put = ::write(ends_[1], content.data() + at, content.size() - at);
        if (put <= 0) break;
        at += static_cast<std::size_t>(put);
      }
      ::close(ends_[1]);
    });
  }
  ~FilledPipe() {
    writer_.join();
    ::close(ends_[0]);
  }
  FilledPipe(const FilledPipe&) = delete;
  FilledPipe& operator=(const FilledPipe&) = delete;

  std::string path() const { return fmt::format("/dev/fd/{}", ends_[0]); }

 private:
  int ends_[2] = {-1, -1};
  std::thread writer_;
};

std::string many_records(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += fmt::format(">p{}\nMKVLACDEFGHIKLMNPQRST\n", i);
  return text;
}

TEST(Pipes, GiveEverySequenceToWhoeverReadsThem) {
  constexpr int kRecords = 4000;
  const FilledPipe looked_at(many_records(kRecords));
  EXPECT_FALSE(is_pds(looked_at.path()));
  EXPECT_EQ(read_fasta(looked_at.path()).counts.records, kRecords);
  const FilledPipe counted(many_records(kRecords));
  EXPECT_EQ(for_sequences(counted.path(), [](const FastaRecord&) {}).records, kRecords);
  const FilledPipe trained(many_records(kRecords));
  DataConfig config;
  config.train = trained.path();
  EXPECT_EQ(open_dataset(config, Split::kTrain)->size(), kRecords);
}

TEST(Pipes, ThatWouldBeReadTwiceAreRefusedBeforeAnythingIsRead) {
  const TemporaryFolder folder;
  const auto refused = [](const DataConfig& config) {
    const auto failure = failure_of([&] { make_token_space(config); });
    return failure.code == ExitCode::kUsage &&
           failure.message.find("gives its data only once") != std::string::npos;
  };
  DataConfig config;
  config.train = config.valid = "-";
  EXPECT_TRUE(refused(config)) << "two splits";
  config.valid = folder.write("b.fasta", ">a\nAC\n");
  EXPECT_FALSE(refused(config));
  config.valid.clear();
  config.split_table = folder.write("t.tsv", "id\tsplit\na\ttrain\n");
  EXPECT_TRUE(refused(config)) << "marked rows";
  for (const char* task : {"classify", "match", "pixels"}) {
    DataConfig labelled;
    labelled.task = task;
    labelled.train = "-";
    EXPECT_TRUE(refused(labelled)) << task;
  }
}

TEST(Pipes, AmongTheFilesOfAPatternAreLeftOut) {
  const TemporaryFolder folder;
  ASSERT_EQ(::mkfifo(folder.file("b.tsv").c_str(), 0600), 0);
  DataConfig config;
  config.task = "classify";
  config.train = folder.file("*.tsv");
  EXPECT_NE(failure_of([&] { make_token_space(config); }).message.find("no file matches"),
            std::string::npos);
  folder.write("a.tsv", "text\tlabel\nx\ta\ny\tb\n");
  EXPECT_EQ(make_token_space(config).num_classes(), 2);
}

TEST(Pipes, WithoutDataSaySo) {
  const FilledPipe empty("");
  EXPECT_NE(failure_of([&] { read_all(empty.path(), 100); }).message.find("read only once"),
            std::string::npos);
}

TEST(Kinds, ThatAreNotReadAreNamedWithWhatToDo) {
  const TemporaryFolder folder;
  const auto message_for = [&](const std::string& bytes) {
    const auto failure = failure_of([&] { read_fasta(folder.write("a", bytes)); });
    EXPECT_EQ(failure.code, ExitCode::kBadInput);
    return failure.message;
  };
  EXPECT_NE(message_for("\x28\xB5\x2F\xFD and so on").find("zstd -dc"), std::string::npos);
  EXPECT_NE(message_for("BZh91AY&SY and so on").find("bzip2 -dc"), std::string::npos);
  EXPECT_NE(message_for(std::string("\xFD"
                                    "7zXZ\0and so on",
                                    15))
                .find("xz -dc"),
            std::string::npos);
  EXPECT_NE(message_for("PK\x03\x04 and so on").find("unzip -p"), std::string::npos);
  EXPECT_NE(message_for("\xFF\xFE>\0a\0\n\0").find("iconv -f UTF-16"), std::string::npos);
  const FilledPipe built("PERFPDS\n and so on");
  EXPECT_NE(failure_of([&] { read_fasta(built.path()); }).message.find("name the file itself"),
            std::string::npos);
}

TEST(Kinds, AByteOrderMarkIsPassedOver) {
  const TemporaryFolder folder;
  const std::string mark = "\xEF\xBB\xBF";
  EXPECT_EQ(read_fasta(folder.write("a.fasta", mark + ">a\nAC\n")).counts.residues, 2);
  EXPECT_EQ(read_fasta(write_gzip(folder, "b.gz", mark + ">a\nAC\n")).counts.residues, 2);
  EXPECT_EQ(read_all(folder.write("only", mark), 100), "");
  EXPECT_EQ(read_all(folder.write("binary", mark + "x"), 100, Content::kBinary), mark + "x");
  EXPECT_EQ(TsvReader(folder.write("t.tsv", mark + "id\tsplit\n")).at("id"), 0U);
}

class Gzip : public ::testing::Test {
 protected:
  std::string packed(const std::string& text) const {
    return read_file(write_gzip(folder_, "packed", text));
  }
  std::string unpacked(const std::string& bytes) const {
    return read_all(folder_.write("bytes", bytes), std::int64_t{1} << 30);
  }
  TemporaryFolder folder_;
};

TEST_F(Gzip, MembersFollowEachOtherWhereverPiecesEnd) {
  const std::string one = packed("one"), two = packed("two");
  const std::string nothing = packed("");  // as at the end of blocked gzip
  EXPECT_EQ(unpacked(one + nothing + two + nothing), "onetwo");
  // A name in the head makes a member as long as the test wants: the border of the first piece of
  // 2^18 bytes falls on each byte of the next member's mark, and before and behind it.
  for (std::size_t before = 0; before < 4; ++before) {
    std::string first = one;
    first[3] = static_cast<char>(first[3] | 8);
    first.insert(10, std::string((std::size_t{1} << 18) - before - one.size() - 1, 'n') + '\0');
    ASSERT_EQ(first.size() + before, std::size_t{1} << 18);
    EXPECT_EQ(unpacked(first + two), "onetwo") << before;
    EXPECT_EQ(unpacked(first + std::string(3, '\0')), "one") << before;
  }
}

TEST_F(Gzip, ZerosMayFollowTheLastMemberAndNothingElse) {
  const std::string one = packed("one"), zeros(1'000'000, '\0');
  EXPECT_EQ(unpacked(one + zeros), "one");
  EXPECT_EQ(unpacked(one + '\0'), "one");
  for (const std::string& rest : {std::string("trailing words"), std::string("t"), zeros + "t"}) {
    const auto failure = failure_of([&] { unpacked(one + rest); });
    EXPECT_EQ(failure.code, ExitCode::kBadInput);
    EXPECT_NE(failure.message.find("is no gzip data"), std::string::npos) << failure.message;
  }
}

TEST_F(Gzip, AMemberWithADamagedMarkIsNoTrailingGarbage) {
  for (const std::size_t byte : {0U, 1U}) {
    std::string two = packed("two");
    two[byte] = static_cast<char>(two[byte] ^ 4);
    EXPECT_EQ(failure_of([&] { unpacked(packed("one") + two); }).code, ExitCode::kBadInput);
  }
}

}  // namespace
}  // namespace performer::data
