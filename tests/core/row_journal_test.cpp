#include "performer/core/row_journal.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "performer/core/error.h"
#include "tests/support/temporary_folder.h"

namespace performer {
namespace {

const nlohmann::ordered_json kIdentity = {{"model", "a"}, {"layer", 1}};

std::string failure_of(const std::filesystem::path& path, const nlohmann::ordered_json& identity) {
  try {
    const RowJournal journal(path, identity, 4, false);
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

TEST(RowJournal, KeepsRowsOfAnyOrderAndLength) {
  const testing::TemporaryFolder folder;
  const auto path = folder.path() / "rows";
  {
    RowJournal journal(path, kIdentity, 4, false);
    journal.add(2, std::vector<float>{1, 2, 3});
    journal.add(0, std::vector<float>{});
  }
  const RowJournal journal(path, kIdentity, 4, false);
  EXPECT_EQ(journal.done(), 2);
  EXPECT_TRUE(journal.has(0));
  EXPECT_FALSE(journal.has(1));
  EXPECT_EQ(journal.read(2), (std::vector<float>{1, 2, 3}));
  EXPECT_TRUE(journal.read(0).empty());
}

TEST(RowJournal, DropsEveryPartOfARecordThatWasCutShort) {
  const testing::TemporaryFolder folder;
  const auto path = folder.path() / "rows";
  std::int64_t first = 0;
  {
    RowJournal journal(path, kIdentity, 4, false);
    journal.add(0, std::vector<float>{1});
    first = static_cast<std::int64_t>(std::filesystem::file_size(path));
    journal.add(1, std::vector<float>{2});
  }
  const auto all = static_cast<std::int64_t>(std::filesystem::file_size(path));
  for (auto size = all - 1; size >= first; --size) {
    std::filesystem::resize_file(path, static_cast<std::uintmax_t>(size));
    RowJournal journal(path, kIdentity, 4, false);
    EXPECT_EQ(journal.done(), 1) << size;
    journal.add(1, std::vector<float>{2});
    EXPECT_EQ(static_cast<std::int64_t>(std::filesystem::file_size(path)), all);
  }
}

TEST(RowJournal, IsOfOneProgramAtATime) {
  const testing::TemporaryFolder folder;
  const RowJournal journal(folder.path() / "rows", kIdentity, 4, false);
  EXPECT_NE(failure_of(folder.path() / "rows", kIdentity).find("another program is writing it"),
            std::string::npos);
}

TEST(RowJournal, NamesWhatDiffers) {
  const testing::TemporaryFolder folder;
  { const RowJournal journal(folder.path() / "rows", kIdentity, 4, false); }
  const auto failure = failure_of(folder.path() / "rows", {{"model", "b"}, {"layer", 1}});
  EXPECT_NE(failure.find("model was \"a\", is \"b\""), std::string::npos) << failure;
  EXPECT_EQ(failure.find("layer"), std::string::npos) << failure;
}

TEST(RowJournal, LeavesTheFilesOfOthersAlone) {
  const testing::TemporaryFolder folder;
  const auto path = folder.path() / "rows";
  write_file_atomic(path, "a letter to somebody\n");
  EXPECT_NE(failure_of(path, kIdentity).find("no journal of ours"), std::string::npos);
  EXPECT_EQ(read_file(path), "a letter to somebody\n");
}

}  // namespace
}  // namespace performer
