#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "performer/data/hf/tokenizer_files.h"
#include "tests/support/failure.h"

/// Files that are damaged, or say what is not supported: one line each that names the place.
namespace performer::data::hf {
namespace {

using performer::testing::failure_of;

// {"a": 0, "b": 1, "ab": 2, "[UNK]": 3}, and what a test puts in its place.
struct Json {
  std::string vocab = R"({"a": 0, "b": 1, "ab": 2, "[UNK]": 3})";
  std::string merges = R"([["a", "b"]])";
  std::string model = R"("type": "BPE", )";
  std::string rest;

  std::string text() const {
    return "{" + rest + R"("model": {)" + model + R"("vocab": )" + vocab + R"(, "merges": )" +
           merges + "}}";
  }
};

struct Case {
  const char* name;
  std::string text;
  const char* message;
};

std::string with(const char* rest) { return Json{.rest = std::string(rest) + ", "}.text(); }
std::string with_vocab(const char* vocab) { return Json{.vocab = vocab}.text(); }
std::string with_merges(const char* merges) { return Json{.merges = merges}.text(); }
std::string with_model(const char* model) {
  return Json{.model = std::string(model) + ", "}.text();
}
std::string with_token(const char* token) {
  return with((R"("added_tokens": [)" + std::string(token) + "]").c_str());
}

const std::vector<Case>& cases() {
  static const std::string deep(100'000, '[');
  static const std::string long_token(1025, 'x');
  static const std::vector<Case> all = {
      {"Empty", "", "not JSON"},
      {"NoObject", "[]", "must be an object"},
      {"NoModel", "{}", "model is missing"},
      {"CutShort", Json{}.text().substr(0, 50), "cut short"},
      {"Deep", with(("\"x\": " + deep).c_str()), "nested deeper than 32 levels"},
      {"DeepAlone", deep, "nested deeper than 32 levels"},
      {"DeepMerges", with_merges(deep.c_str()), "merge 1 must be a pair"},
      {"NulByte", std::string("{\0}", 3), "a NUL byte"},
      {"NotUtf8", "{\"\xff\": 1}", "not UTF-8"},
      {"LoneSurrogate", with_vocab(R"({"\ud800": 0})"), "not JSON"},
      {"Version", with(R"("version": "2.0")"), "version must be 1.0, got \"2.0\""},
      {"Unigram", R"({"model": {"type": "Unigram", "vocab": [["a", 0.5]]}})",
       "model.type must be WordPiece or BPE (no other is supported), got \"Unigram\""},
      {"WordLevel", with_model(R"("type": "WordLevel")"), "got \"WordLevel\""},
      {"VocabOfNumbers", with_vocab("7"), "model.vocab must be an object"},
      {"NoTokens", with_vocab("{}"), "there are no tokens"},
      {"IdOfText", with_vocab(R"({"a": "0"})"), "the id of the token \"a\" must be a whole number"},
      {"IdOfHalf", with_vocab(R"({"a": 0.5})"), "must be a whole number"},
      {"IdOfObject", with_vocab(R"({"a": {}})"), "must be a whole number"},
      {"IdOfNull", with_vocab(R"({"a": null})"), "must be a whole number"},
      {"NegativeId", with_vocab(R"({"a": -1})"), "the id of \"a\" is -1"},
      {"HugeId", with_vocab(R"({"a": 9223372036854775807})"), "is 9223372036854775807, but 1"},
      {"LargerId", with_vocab(R"({"a": 18446744073709551615})"), "which is too large"},
      {"Hole", with_vocab(R"({"a": 0, "b": 2})"), "the id of \"b\" is 2, but 2 tokens"},
      {"TwiceAnId", with_vocab(R"({"a": 0, "b": 0, "c": 1})"), "the id 0 is that of"},
      {"TwiceAToken", with_vocab(R"({"a": 0, "a": 1})"), "the key \"a\" occurs twice"},
      {"LongToken", with_vocab(("{\"" + long_token + "\": 0}").c_str()), "has 1025 bytes"},
      {"MergeOfUnknown", with_merges(R"([["a", "c"]])"), "needs the token \"c\""},
      {"MergeOfUnknownLeft", with_merges(R"(["c a"])"), "needs the token \"c\""},
      {"MergeIntoUnknown", with_merges(R"(["b a"])"), "needs the token \"ba\""},
      {"MergeOfNothing", with_merges(R"([["", "a"]])"), "needs the token \"\""},
      {"MergeTwice", with_merges(R"(["a b", "a b"])"), "the merge of \"a\" and \"b\" occurs twice"},
      {"MergeOfThree", with_merges(R"([["a", "b", "c"]])"), "merge 1 must be a pair"},
      {"MergeOfOne", with_merges(R"([["a"]])"), "merge 1 must be a pair"},
      {"MergeOfNumbers", with_merges("[1]"), "merge 1 must be a pair"},
      {"MergeOfThreeWords", with_merges(R"(["a b c"])"), "merge 1 must be a pair"},
      {"MergesOfObjects", with_merges("[{}]"), "merge 1 must be a pair"},
      {"MergesNull", with_merges("null"), "model.merges must be a list"},
      {"NoUnknown", with_model(R"("type": "BPE", "unk_token": "?")"), "unknown token \"?\""},
      {"Dropout", with_model(R"("dropout": 0.1)"), "model.dropout must be 0 or null"},
      {"Suffix", with_model(R"("end_of_word_suffix": "</w>")"), "end_of_word_suffix must be empty"},
      {"FlagOfText", with_model(R"("fuse_unk": "yes")"), "must be true or false"},
      {"LongWords", with_model(R"("type": "WordPiece", "max_input_chars_per_word": 1000000000)"),
       "max_input_chars_per_word is 1000000000"},
      {"Normalizer", with(R"("normalizer": {"type": "Precompiled"})"),
       "normalizer.type must be BertNormalizer, NFC, NFD, Lowercase, Prepend, Replace or Sequence"},
      {"NormalizerPart",
       with(R"("normalizer": {"type": "Sequence", "normalizers": [{"type": "NFKC"}]})"),
       "normalizer.normalizers[0].type must be"},
      {"ReplaceByExpression",
       with(R"("normalizer": {"type": "Replace", "pattern": {"Regex": "x"}, "content": ""})"),
       "expressions are not supported here"},
      {"ReplaceNothing",
       with(R"("normalizer": {"type": "Replace", "pattern": {"String": ""}, "content": "x"})"),
       "a String that is not empty"},
      {"PrependABook",
       with((R"("normalizer": {"type": "Prepend", "prepend": ")" + long_token + "\"}").c_str()),
       "at most 64 bytes"},
      {"PreTokenizer", with(R"("pre_tokenizer": {"type": "UnicodeScripts"})"),
       "pre_tokenizer.type must be BertPreTokenizer, WhitespaceSplit, ByteLevel"},
      {"Pattern", with(R"("pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(a+)+b"}})"),
       "must be the Regex of GPT-2, Llama 3, Qwen 2 and 3, Qwen 3.5"},
      {"PatternOfText", with(R"("pre_tokenizer": {"type": "Split", "pattern": {"String": " "}})"),
       "must be the Regex of"},
      {"TwoByteLevels",
       with(R"("pre_tokenizer": {"type": "Sequence", "pretokenizers": )"
            R"([{"type": "ByteLevel"}, {"type": "ByteLevel"}]})"),
       "with one ByteLevel or Metaspace alone"},
      {"LongMetaspace", with(R"("pre_tokenizer": {"type": "Metaspace", "replacement": "ab"})"),
       "replacement must be one character"},
      {"Decoder", with(R"("decoder": {"type": "CTC"})"), "decoder.type must be WordPiece"},
      {"DecoderGrows",
       with(R"("decoder": {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"})"),
       "no longer than the pattern"},
      {"PostProcessor", with(R"("post_processor": {"type": "Pair"})"),
       "post_processor.type must be TemplateProcessing"},
      {"TemplateOfTwo",
       with(R"("post_processor": {"type": "TemplateProcessing", "single": )"
            R"([{"Sequence": {"id": "A"}}, {"Sequence": {"id": "B"}}]})"),
       "must be one Sequence A"},
      {"TemplateOfNone", with(R"("post_processor": {"type": "TemplateProcessing", "single": []})"),
       "a list with a Sequence A"},
      {"TemplateId",
       with(R"("post_processor": {"type": "BertProcessing", "sep": ["x", 9], "cls": ["y", 0]})"),
       "the post-processor adds the id 9, of 4 tokens"},
      {"AddedHole", with_token(R"({"id": 6, "content": "x"})"), "where the next one is 4"},
      {"AddedOther", with_token(R"({"id": 1, "content": "a"})"), "where the vocabulary's is 0"},
      {"AddedNegative", with_token(R"({"id": -4, "content": "x"})"), "at least 0"},
      {"AddedEmpty", with_token(R"({"id": 4, "content": ""})"), "has 0 bytes"},
      {"AddedTwice", with_token(R"({"id": 0, "content": "a"}, {"id": 0, "content": "a"})"),
       "occurs twice"},
      {"AddedNumber", with_token("7"), "added_tokens[0] must be an object"},
  };
  return all;
}

void expect_refused(const TokenizerFiles& files, const std::string& message) {
  const auto failure = failure_of([&] { make_tokenizer(files); });
  EXPECT_EQ(failure.code, ExitCode::kCorrupt) << failure.message;
  EXPECT_NE(failure.message.find(message), std::string::npos) << failure.message;
  EXPECT_EQ(failure.message.find('\n'), std::string::npos) << failure.message;
  EXPECT_TRUE(failure.message.starts_with("folder")) << failure.message;
  EXPECT_LT(failure.message.size(), 500U);
}

class HostileTokenizer : public ::testing::TestWithParam<Case> {};

TEST_P(HostileTokenizer, IsRefusedInOneLine) {
  expect_refused({"folder", {{"tokenizer.json", GetParam().text}}}, GetParam().message);
}

INSTANTIATE_TEST_SUITE_P(Files, HostileTokenizer, ::testing::ValuesIn(cases()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(HfTokenizerFiles, WhatTheCasesChangeIsTaken) {
  const auto tokenizer = make_tokenizer({"folder", {{"tokenizer.json", Json{}.text()}}});
  EXPECT_EQ(tokenizer->encode("abba"), (std::vector<std::int64_t>{2, 1, 0}));
  EXPECT_EQ(make_tokenizer({"folder", {}}), nullptr);
}

TEST(HfTokenizerFiles, PlainFilesThatAreDamagedAreRefusedInOneLine) {
  const std::string words = "[UNK]\n[CLS]\n[SEP]\n";
  expect_refused({"folder", {{"vocab.txt", ""}}}, "there are no tokens");
  expect_refused({"folder", {{"vocab.txt", "a\nb\n"}}}, "the token [CLS] is not in it");
  expect_refused({"folder", {{"vocab.txt", words + "a\na\n"}}}, "\"a\" occurs twice, as 3 and 4");
  const auto file = [&](const char* config) {
    return TokenizerFiles{"folder", {{"vocab.txt", words}, {"tokenizer_config.json", config}}};
  };
  expect_refused(file("[]"), "must be an object");
  expect_refused(file(R"({"tokenizer_class": "T5Tokenizer"})"), "got \"T5Tokenizer\"");
  expect_refused(file(R"({"mask_token": "<m>"})"), "the mask_token \"<m>\" is in no vocabulary");
  expect_refused(file(R"({"do_lower_case": 1})"), "do_lower_case must be true or false");
  expect_refused(file(R"({"added_tokens_decoder": {"x": {"content": "y"}}})"), "keys are ids");
  const auto merges = [](const char* vocabulary, const char* text) {
    return TokenizerFiles{"folder", {{"vocab.json", vocabulary}, {"merges.txt", text}}};
  };
  expect_refused(merges(R"({"a": 0})", "#version: 0.2\na b c\n"), "merges.txt:2: must be two");
  expect_refused(merges(R"({"a": 0})", "a b\n"), "needs the token \"b\"");
  expect_refused(merges(R"({"a": 1})", ""), "the id of \"a\" is 1");
  expect_refused(merges("{", ""), "vocab.json: line 1");
}

TEST(HfTokenizerFiles, TextThatIsNotUtf8IsTheUsersFault) {
  const auto tokenizer = make_tokenizer({"folder", {{"tokenizer.json", Json{}.text()}}});
  const auto failure = failure_of([&] { tokenizer->encode("a\xff"); });
  EXPECT_EQ(failure.code, ExitCode::kBadInput);
}

TEST(HfTokenizerFiles, ANormalizerThatMakesTextGrowIsStopped) {
  std::string steps;
  for (int i = 0; i < 40; ++i) {
    steps += std::string(i > 0 ? "," : "") +
             R"({"type": "Replace", "pattern": {"String": "a"}, "content": "aa"})";
  }
  const auto text =
      with((R"("normalizer": {"type": "Sequence", "normalizers": [)" + steps + "]}").c_str());
  const auto tokenizer = make_tokenizer({"folder", {{"tokenizer.json", text}}});
  EXPECT_EQ(failure_of([&] { tokenizer->encode("a"); }).code, ExitCode::kCorrupt);
}

}  // namespace
}  // namespace performer::data::hf
