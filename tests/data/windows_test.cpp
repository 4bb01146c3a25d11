#include "performer/data/windows.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "performer/core/error.h"
#include "performer/core/file.h"
#include "performer/data/targets.h"
#include "performer/data/whole_sequences.h"
#include "tests/support/failure.h"
#include "tests/support/temporary_folder.h"

namespace performer::data {
namespace {

using ::performer::testing::failure_of;
using ::performer::testing::TemporaryFolder;
using Tokens = std::vector<std::int64_t>;

struct Filled {
  Tokens tokens, targets;  // real ones
  RowInfo info;
};

Filled fill(const Dataset& dataset, std::int64_t sample) {
  const auto length = static_cast<std::size_t>(dataset.length());
  Tokens tokens(length), targets(length, kIgnore);
  const auto info = dataset.fill({7, 0, sample, Use::kEvaluation},
                                 {.tokens = tokens, .targets = targets, .tokens_b = {}});
  tokens.resize(static_cast<std::size_t>(info.length));
  targets.resize(static_cast<std::size_t>(info.length));
  return {tokens, targets, info};
}

/// Sequences of 3, 9 and 20 residues.
class WindowsTest : public ::testing::Test {
 protected:
  WindowsTest() {
    const std::string letters = "ACDEFGHIKLMNPQRSTVWY";
    std::string text;
    for (const std::size_t n : {3, 9, 20}) {
      text += ">s" + std::to_string(n) + "\n" + letters.substr(0, n) + "\n";
    }
    write_file_atomic(folder_ / "a.fasta", text);
    config_.test = (folder_ / "a.fasta").string();
    config_.length = 8;
  }

  std::shared_ptr<const Dataset> open(Ids ids = Ids::kDrop) const {
    return open_dataset(config_, Split::kTest, protein_space(), ids);
  }

  TemporaryFolder folder_;
  DataConfig config_;
};

TEST_F(WindowsTest, EveryTargetOfASequenceIsAskedOnceInItsOrder) {
  const auto rows = open();
  for (const std::int64_t overlap : {0, 1, 4, 7}) {
    const WindowDataset windows(rows, overlap);
    std::vector<Tokens> asked(3);
    for (std::int64_t i = 0; i < windows.size(); ++i) {
      const auto [tokens, targets, info] = fill(windows, i);
      std::int64_t count = 0;
      for (const auto target : targets) {
        if (target == kIgnore) continue;
        asked[static_cast<std::size_t>(windows.sequence_of(i))].push_back(target);
        ++count;
      }
      EXPECT_EQ(info.targets, count);
    }
    for (std::int64_t s = 0; s < 3; ++s) {
      Tokens whole(static_cast<std::size_t>(rows->whole()->tokens(s)));
      rows->whole()->read(s, 0, whole);
      EXPECT_EQ(asked[static_cast<std::size_t>(s)], Tokens(whole.begin() + 1, whole.end()))
          << overlap;
    }
  }
}

TEST_F(WindowsTest, AWindowBeginsWithTheLastTokensOfTheOneBefore) {
  const WindowDataset windows(open(), 3);
  for (std::int64_t i = 1; i < windows.size(); ++i) {
    if (windows.sequence_of(i) != windows.sequence_of(i - 1)) continue;
    const auto before = fill(windows, i - 1), after = fill(windows, i);
    EXPECT_EQ(Tokens(before.tokens.end() - 3, before.tokens.end()),
              Tokens(after.tokens.begin(), after.tokens.begin() + 3));
    EXPECT_EQ(Tokens(after.targets.begin(), after.targets.begin() + 3), Tokens(3, kIgnore));
    EXPECT_NE(after.targets[3], kIgnore);
  }
}

TEST_F(WindowsTest, MaskedWindowsAskNothingInTheirContext) {
  config_.objective = "masked";
  config_.mask_probability = 1;
  const WindowDataset windows(open(), 2);
  std::int64_t asked = 0;
  for (std::int64_t i = 0; i < windows.size(); ++i) {
    const auto [tokens, targets, info] = fill(windows, i);
    const bool first = i == 0 || windows.sequence_of(i) != windows.sequence_of(i - 1);
    EXPECT_TRUE(first || (targets[0] == kIgnore && targets[1] == kIgnore)) << i;
    asked += info.targets;
  }
  EXPECT_EQ(asked, 3 + 9 + 20);  // all residues once
}

TEST_F(WindowsTest, CoverageCountsWhatRowsLeaveOut) {
  const auto causal = coverage(*open(), 100);  // a row has the first 8 residues as targets
  EXPECT_EQ(causal.sequences, 3);
  EXPECT_EQ(causal.cut, 2);
  EXPECT_EQ(causal.residues, 32);
  EXPECT_EQ(causal.left_out, 1 + 12);
  EXPECT_EQ(causal.longest, 20);
  EXPECT_EQ(coverage(*open(), 2).left_out, 1);
  config_.length = 9;  // the second sequence lacks its EOS alone
  EXPECT_EQ(coverage(*open(), 100).cut, 1);
  config_.objective = "masked";  // BOS takes a place
  EXPECT_EQ(coverage(*open(), 100).left_out, 1 + 12);
}

TEST_F(WindowsTest, OverlapsThatLeaveNoStepAreRefused) {
  for (const std::int64_t overlap : {-1, 8, 1000}) {
    EXPECT_EQ(failure_of([&] { WindowDataset(open(), overlap); }).code, ExitCode::kUsage);
  }
  config_.task = "recall";
  config_.length = 64;
  const std::shared_ptr<const Dataset> recall = open_dataset(config_, Split::kTest);
  EXPECT_EQ(failure_of([&] { WindowDataset(recall, 1); }).code, ExitCode::kUsage);
}

TEST_F(WindowsTest, IdsAreKeptWhereTheyAreAskedFor) {
  EXPECT_EQ(open(Ids::kKeep)->whole()->id(1), "s9");
  EXPECT_EQ(open()->whole()->id(1), "");
}

}  // namespace
}  // namespace performer::data
