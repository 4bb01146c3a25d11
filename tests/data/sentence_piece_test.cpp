#include "performer/data/sentence_piece.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "performer/core/file.h"
#include "performer/data/text.h"
#include "performer/data/train_tokenizer.h"
#include "tests/support/failure.h"
#include "tests/support/temporary_folder.h"

namespace performer::data {
namespace {

using performer::testing::failure_of;
using performer::testing::TemporaryFolder;

// Lines of nine words out of 300, which have up to eight letters.
std::string words(std::int64_t count) {
  std::mt19937 random(1);  // NOLINT: the same text each time
  std::vector<std::string> some = {"the", "cost", "of", "attention", "näher", "é"};
  while (some.size() < 300) {
    std::string word;
    for (auto left = 2 + random() % 7; left > 0; --left) {
      word += static_cast<char>('a' + random() % 26);
    }
    some.push_back(word);
  }
  std::string text;
  for (std::int64_t i = 0; i < count; ++i) {
    text += some[random() % some.size()];
    text += i % 9 == 8 ? '\n' : ' ';
  }
  return text;
}

// One model for all tests: 400 pieces.
const std::string& model() {
  static const std::string bytes = [] {
    const TemporaryFolder folder;
    write_file_atomic(folder / "text", words(4000));
    const auto result = train_tokenizer({(folder / "text").string()}, (folder / "m").string(),
                                        {.vocabulary = 400, .threads = 1});
    EXPECT_EQ(result.vocabulary, 400);
    return read_file(folder / "m");
  }();
  return bytes;
}

TEST(SentencePiece, TextOfManyLinesComesBackByteForByte) {
  const SentencePiece pieces(model(), "model");
  const std::string text = words(500) + "no feed at the end, and letters unseen: Ω🙂";
  EXPECT_EQ(pieces.decode(pieces.encode(text)), text);
  EXPECT_TRUE(pieces.encode("").empty());
  EXPECT_EQ(pieces.decode({}), "");
}

TEST(SentencePiece, LinesAreEncodedOneByOne) {
  const SentencePiece pieces(model(), "model");
  auto both = pieces.encode("the cost\n");
  const auto second = pieces.encode("of attention\n");
  both.insert(both.end(), second.begin(), second.end());
  EXPECT_EQ(pieces.encode("the cost\nof attention\n"), both);
}

TEST(SentencePiece, ALineOfAMebibyteIsCutBetweenCharacters) {
  const SentencePiece pieces(model(), "model");
  std::string line = "x";  // so that cuts at powers of two fall inside of a character
  while (line.size() < (std::size_t{1} << 20)) line += "é";
  EXPECT_EQ(pieces.decode(pieces.encode(line)), line);
}

TEST(SentencePiece, LettersOfLongLinesAreLearned) {
  const TemporaryFolder folder;
  for (const std::size_t size : {14'000, 140'000}) {
    std::string line;
    while (line.size() < size) line += "Ж щ цена внимания ";
    write_file_atomic(folder / "text", words(4000) + line + '\n');
    train_tokenizer({(folder / "text").string()}, (folder / "m").string(),
                    {.vocabulary = 400, .threads = 1});
    const SentencePiece pieces(read_file(folder / "m"), "m");
    EXPECT_LE(pieces.encode("внимания").size(), 8U) << size;  // bytes, where they are not: 16
  }
}

TEST(SentencePiece, SpecialsComeFirst) {
  const SentencePiece pieces(model(), "model");
  EXPECT_EQ(pieces.pad(), 0);
  EXPECT_EQ(pieces.bos(), 1);
  EXPECT_EQ(pieces.eos(), 2);
  EXPECT_EQ(pieces.mask(), 4);
  EXPECT_EQ(pieces.decode(std::vector<std::int64_t>{-1, 4, 400, 1'000'000'000'000}), "");
}

TEST(SentencePiece, OneModelServesManyThreads) {
  const SentencePiece pieces(model(), "model");
  const std::string text = words(300);
  const auto expected = pieces.encode(text);
  std::vector<std::vector<std::int64_t>> seen(4);
  std::vector<std::thread> threads;
  for (auto& tokens : seen) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) tokens = pieces.encode(text);
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& tokens : seen) EXPECT_EQ(tokens, expected);
}

TEST(SentencePiece, ATextOfOneLongLineIsEnough) {
  const TemporaryFolder folder;
  std::string line = words(60'000);
  std::ranges::replace(line, '\n', ' ');
  ASSERT_GT(line.size(), 300'000U);
  write_file_atomic(folder / "text", line);
  const auto result = train_tokenizer({(folder / "text").string()}, (folder / "m").string(),
                                      {.vocabulary = 400, .threads = 1});
  EXPECT_EQ(result.vocabulary, 400);
}

TEST(SentencePiece, ModelsThatAreNoneOrDamagedAreRefusedOrWork) {
  for (const auto& bytes : {std::string(), std::string("\0\1\2", 3), std::string(5000, 'x')}) {
    const auto failure = failure_of([&] { const SentencePiece pieces(bytes, "some.model"); });
    EXPECT_EQ(failure.code, ExitCode::kBadInput);
    EXPECT_NE(failure.message.find("some.model: is no SentencePiece model ("), std::string::npos)
        << failure.message;
  }
  std::mt19937 random(2);  // NOLINT: the same damage each time
  for (int i = 0; i < 40; ++i) {
    std::string bytes = model();
    if (i % 4 == 0) bytes.resize(random() % bytes.size());
    for (int j = 0; j < 8 && !bytes.empty(); ++j) {
      bytes[random() % bytes.size()] ^= static_cast<char>(1U << (random() % 8));
    }
    const auto failure = failure_of([&] {
      const SentencePiece pieces(bytes, "some.model");
      const auto tokens = pieces.encode("the cost of attention\n");
      static_cast<void>(pieces.decode(tokens));
    });
    EXPECT_TRUE(failure.code == ExitCode::kOk || failure.code == ExitCode::kBadInput)
        << failure.message;
  }
}

TEST(SentencePiece, SignalsForTheWholeGroupLeaveTheTokenizerAtWork) {
  const pid_t group = ::getpgrp();
  ASSERT_EQ(::setpgid(0, 0), 0);  // a group of this test alone
  const SentencePiece pieces(model(), "model");
  ASSERT_FALSE(pieces.encode("the cost\n").empty());
  const auto before = std::signal(SIGTERM, SIG_IGN);
  ASSERT_EQ(::kill(0, SIGTERM), 0);
  std::signal(SIGTERM, before);
  EXPECT_FALSE(pieces.encode("the cost\n").empty());
  ::setpgid(0, group);
}

// A process of ours that this one started last.
pid_t child_of_ours() {
  pid_t child = -1;
  std::ifstream("/proc/self/task/" + std::to_string(::gettid()) + "/children") >> child;
  return child;
}

TEST(SentencePiece, AProcessThatIsKilledIsNoFaultOfTheModel) {
  for (const auto& [signal, code] :
       {std::pair{SIGKILL, ExitCode::kOutOfMemory}, std::pair{SIGSEGV, ExitCode::kFailure}}) {
    const SentencePiece pieces(model(), "model");
    const pid_t child = child_of_ours();
    ASSERT_GT(child, 0);
    ASSERT_EQ(::kill(child, signal), 0);
    EXPECT_EQ(failure_of([&] { pieces.encode("the cost\n"); }).code, code);
    EXPECT_EQ(failure_of([&] { pieces.encode("the cost\n"); }).code, ExitCode::kFailure);
  }
}

TEST(SentencePiece, AProcessWithTooLittleMemorySaysSo) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer's allocator ends the process by itself";
#endif
  const SentencePiece pieces(model(), "model");
  const struct rlimit limit = {1 << 20, 1 << 20};
  ASSERT_EQ(::prlimit(child_of_ours(), RLIMIT_DATA, &limit, nullptr), 0);
  const auto failure = failure_of([&] { pieces.encode(std::string(1 << 26, 'x')); });
  EXPECT_EQ(failure.code, ExitCode::kOutOfMemory) << failure.message;
}

TEST(TrainTokenizer, NamesTheVocabularyOnlyWhereItIsAtFault) {
  const TemporaryFolder folder;
  write_file_atomic(folder / "text", words(100));
  const auto failure = failure_of([&] {
    train_tokenizer({(folder / "text").string()}, (folder / "m").string(), {.vocabulary = 9});
  });
  EXPECT_EQ(failure.code, ExitCode::kBadInput);
  EXPECT_NE(failure.message.find("try another --vocabulary"), std::string::npos) << failure.message;
}

TEST(TrainTokenizer, RefusesTextThatIsNotUtf8ByFileAndLine) {
  const TemporaryFolder folder;
  write_file_atomic(folder / "good", words(4000));
  write_file_atomic(folder / "latin", "one\ncaf\xe9\n");
  const auto failure = failure_of([&] {
    train_tokenizer({(folder / "good").string(), (folder / "latin").string()},
                    (folder / "m").string(), {.vocabulary = 400});
  });
  EXPECT_EQ(failure.code, ExitCode::kBadInput);
  EXPECT_NE(failure.message.find("latin:2: byte 0xe9 in column 4"), std::string::npos)
      << failure.message;
}

TEST(TrainTokenizer, KnowsBeforeItTrainsThatTheOutputCannotBeWritten) {
  const TemporaryFolder folder;
  write_file_atomic(folder / "text", words(100));
  const auto failure = failure_of([&] {
    train_tokenizer({(folder / "text").string()}, (folder / "none" / "m").string(),
                    {.vocabulary = 9});  // which training would refuse
  });
  EXPECT_EQ(failure.code, ExitCode::kNoSpace);
}

TEST(SentencePiece, EndsItsProcessWhileAForkHoldsTheSocket) {
  auto pieces = std::make_unique<const SentencePiece>(model(), "model");
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    while (true) ::pause();
  }
  pieces.reset();  // would wait for ever
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), 0) << "only the fork is left";
  ::kill(child, SIGKILL);
  EXPECT_EQ(::waitpid(child, nullptr, 0), child);
}

TEST(FirstLines, EndWhereLinesEndAndTakeALongLineWhole) {
  EXPECT_EQ(first_lines("a\nb"), "a\nb");
  const std::string filler(1 << 19, 'x');
  EXPECT_EQ(first_lines(filler + "\n" + filler + "\n").size(), filler.size() + 1);
  const std::string line = filler + filler + filler;
  EXPECT_EQ(first_lines(line + "\ny").size(), line.size() + 1);
  EXPECT_EQ(first_lines(line), line);
}

}  // namespace
}  // namespace performer::data
