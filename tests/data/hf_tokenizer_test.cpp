#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "performer/core/file.h"
#include "performer/data/hf/open_tokenizer.h"
#include "performer/data/hf/unicode.h"
#include "tests/support/failure.h"
#include "tests/support/temporary_folder.h"

namespace performer::data {
namespace {

using performer::testing::failure_of;
using performer::testing::TemporaryFolder;
using Ids = std::vector<std::int64_t>;

const std::string kBert = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nun\n##aff\n##able\na\n##b\n";

TokenSpace bert() { return hf_space({"bert", {{"vocab.txt", kBert}}}); }

TEST(PrefixIndex, FindsTheLongestPrefixAmongMany) {
  std::mt19937 random(3);  // NOLINT: the same texts each time
  const auto text = [&](std::size_t most) {
    std::string letters;
    for (auto left = random() % (most + 1); left > 0; --left) letters += "ab\xc3\0"[random() % 4];
    return letters;
  };
  for (int round = 0; round < 50; ++round) {
    std::map<std::string, std::int32_t> texts;
    for (int i = 0; i < 60; ++i) texts.emplace(text(12), i);
    std::vector<hf::PrefixIndex::Entry> entries;
    for (const auto& [name, id] : texts) entries.push_back({name, id});
    const hf::PrefixIndex index(entries);
    for (int i = 0; i < 100; ++i) {
      const std::string asked = text(16);
      const auto found = texts.find(asked);
      EXPECT_EQ(index.find(asked), found == texts.end() ? -1 : found->second);
      std::int32_t longest = -1;
      for (std::size_t size = 0; size <= asked.size(); ++size) {
        const auto prefix = texts.find(asked.substr(0, size));
        if (prefix != texts.end()) longest = prefix->second;
      }
      EXPECT_EQ(index.longest_prefix(asked).id, longest);
    }
  }
}

TEST(HfUnicode, LettersComeBackFromTheirBytes) {
  for (char32_t c = 0; c < 0x110000; c += 61) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text = "x";
    hf::append_letter(text, c);
    std::size_t at = 1;
    EXPECT_EQ(hf::next_letter(text, at), c);
    EXPECT_EQ(at, text.size());
    EXPECT_EQ(hf::previous_letter(text, at), c);
    EXPECT_EQ(at, 1U);
  }
}

TEST(HfTokens, SpecialsHaveTheirMeanings) {
  const TokenSpace space = bert();
  EXPECT_EQ(space.vocabulary, 10);
  EXPECT_EQ(space.pad, 0);
  EXPECT_EQ(space.bos, 2);
  EXPECT_EQ(space.eos, 3);
  EXPECT_EQ(space.mask, 4);
  EXPECT_EQ(space.first_regular, 5);
  EXPECT_EQ(space.regular, 5);
  EXPECT_EQ(space.never_generated(), (Ids{0, 1, 2, 4}));
  EXPECT_EQ(space.encode("Unaffable ab?"), (Ids{5, 6, 7, 8, 9, 1}));
  EXPECT_EQ(space.encode_whole("[MASK]"), (Ids{2, 4, 3}));
  EXPECT_EQ(space.decode(Ids{2, 5, 6, 7, 8, 9, 3, 99, -1}), "unaffable ab");
}

TEST(HfTokens, ComeBackFromACheckpointsFiles) {
  const TokenSpace before = bert();
  auto json = before.to_json();
  const TokenSpace after = TokenSpace::from_json(json, before.model_bytes());
  EXPECT_EQ(after.to_json(), json);
  EXPECT_EQ(after.model_bytes(), before.model_bytes());
  EXPECT_EQ(after.encode_whole("unable"), before.encode_whole("unable"));
  json["vocabulary"] = 12;  // rows of the model that no token has
  EXPECT_EQ(TokenSpace::from_json(json, before.model_bytes()).never_generated(),
            (Ids{0, 1, 2, 4, 10, 11}));
  json["vocabulary"] = 10;
  for (const char* bytes : {"", "{", "[]", "{}", R"({"vocab.txt": 1})", R"({"other": ""})"}) {
    const auto failure = failure_of([&] { TokenSpace::from_json(json, bytes); });
    EXPECT_EQ(failure.code, ExitCode::kCorrupt) << bytes;
    EXPECT_NE(failure.message.find("tokenizer.model"), std::string::npos) << failure.message;
  }
}

TEST(HfTokens, AFolderIsOpenedByWhatIsInIt) {
  const TemporaryFolder folder;
  const auto failure = failure_of([&] { open_hf_tokenizer(folder.path()); });
  EXPECT_EQ(failure.code, ExitCode::kBadInput);
  EXPECT_NE(failure.message.find("holds no tokenizer"), std::string::npos) << failure.message;
  write_file_atomic(folder / "vocab.txt", kBert);
  EXPECT_EQ(open_hf_tokenizer(folder.path()).encode("unable"), (Ids{5, 7}));
  write_file_atomic(folder / "tokenizer.json",
                    R"({"model": {"vocab": {"a": 0, "b": 1}, "merges": []}})");
  EXPECT_EQ(open_hf_tokenizer(folder.path()).encode("ab"), (Ids{0, 1}));
}

}  // namespace
}  // namespace performer::data
