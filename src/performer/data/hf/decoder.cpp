#include "performer/data/hf/decoder.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include "performer/core/safe_text.h"
#include "performer/data/hf/byte_letters.h"
#include "performer/data/hf/unicode.h"

namespace performer::data::hf {
namespace {

using Tokens = std::vector<std::string>;

constexpr std::string_view kReplacement = "\uFFFD";

std::string joined(const Tokens& tokens, std::string_view between) {
  std::string text;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0) text += between;
    text += tokens[i];
  }
  return text;
}

// What English puts no space before, in the order of the package.
std::string cleaned_up(std::string text) {
  static const std::vector<Replace> kRules = {
      {" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
      {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
      {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const Replace& rule : kRules) text = replaced(text, rule);
  return text;
}

// Bytes at the beginning that are a character cut short, or one that begins none: what one U+FFFD
// stands for.
std::size_t broken_prefix(std::string_view text) {
  // The first bytes of a character are those that some ending completes.
  constexpr std::string_view kEndings[] = {"\x80", "\x90", "\xA0", "\xBF"};
  for (std::size_t length = std::min<std::size_t>(text.size(), 3); length > 1; --length) {
    for (const auto ending : kEndings) {
      std::string whole(text.substr(0, length));
      while (whole.size() < 4) {
        whole += ending;
        if (is_utf8(whole)) return length;
      }
    }
  }
  return 1;
}

std::string valid_utf8(std::string_view bytes) {
  std::string text;
  while (true) {
    const std::size_t good = utf8_prefix(bytes);
    text += bytes.substr(0, good);
    bytes.remove_prefix(good);
    if (bytes.empty()) return text;
    text += kReplacement;
    bytes.remove_prefix(broken_prefix(bytes));
  }
}

std::optional<char> byte_of(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return std::nullopt;
  unsigned value = 0;
  const char* begin = token.data() + 3;
  const auto [end, error] = std::from_chars(begin, begin + 2, value, 16);
  if (error != std::errc() || end != begin + 2) return std::nullopt;
  return static_cast<char>(value);
}

void run_step(const JoinPieces& step, Tokens& tokens) {
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0) {
      if (tokens[i].starts_with(step.prefix)) {
        tokens[i].erase(0, step.prefix.size());
      } else {
        tokens[i].insert(0, 1, ' ');
      }
    }
    if (step.clean_up) tokens[i] = cleaned_up(std::move(tokens[i]));
  }
}

void run_step(FromByteLetters /*step*/, Tokens& tokens) {
  std::string bytes;
  for (const auto& token : tokens) append_bytes(bytes, token);
  tokens = {valid_utf8(bytes)};
}

void run_step(const Replace& step, Tokens& tokens) {
  for (auto& token : tokens) token = replaced(token, step);
}

void run_step(FromBytes /*step*/, Tokens& tokens) {
  Tokens result;
  std::string bytes;
  const auto flush = [&] {
    if (is_utf8(bytes)) {
      if (!bytes.empty()) result.push_back(bytes);
    } else {
      for (std::size_t i = 0; i < bytes.size(); ++i) result.emplace_back(kReplacement);
    }
    bytes.clear();
  };
  for (auto& token : tokens) {
    if (const auto byte = byte_of(token)) {
      bytes += *byte;
      continue;
    }
    flush();
    result.push_back(std::move(token));
  }
  flush();
  tokens = std::move(result);
}

void run_step(Fuse /*step*/, Tokens& tokens) { tokens = {joined(tokens, "")}; }

void run_step(const Strip& step, Tokens& tokens) {
  for (auto& token : tokens) {
    std::size_t begin = 0, end = token.size();
    for (std::int64_t i = 0; i < step.start && begin < end; ++i) {
      std::size_t next = begin;
      if (next_letter(token, next) != step.letter) break;
      begin = next;
    }
    for (std::int64_t i = 0; i < step.stop && begin < end; ++i) {
      std::size_t before = end;
      if (previous_letter(token, before) != step.letter) break;
      end = before;
    }
    token = token.substr(begin, end - begin);
  }
}

void run_step(const FromMetaspace& step, Tokens& tokens) {
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const bool gone = i == 0 && step.drop_first;
    tokens[i] = replaced(tokens[i], {step.letter, gone ? "" : " "});
  }
}

}  // namespace

std::string Decoder::decode(std::vector<std::string> tokens) const {
  for (const auto& step : steps_) {
    std::visit([&](const auto& s) { run_step(s, tokens); }, step);
  }
  return joined(tokens, steps_.empty() ? " " : "");
}

}  // namespace performer::data::hf
