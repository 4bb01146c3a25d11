#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "performer/core/safe_text.h"
#include "performer/data/hf/tokenizer_files.h"
#include "tests/fuzz/targets.h"

namespace performer::fuzz {
namespace {

// Files of one folder and a text, which NUL bytes part. What a file is called its first letter says.
std::string take_files(std::string_view rest, data::hf::TokenizerFiles& files) {
  constexpr std::array<std::pair<char, const char*>, 5> kNames = {{{'t', "tokenizer.json"},
                                                                   {'c', "tokenizer_config.json"},
                                                                   {'v', "vocab.txt"},
                                                                   {'j', "vocab.json"},
                                                                   {'m', "merges.txt"}}};
  for (std::size_t end = 0; (end = rest.find('\0')) != std::string_view::npos;) {
    const auto file = rest.substr(0, end);
    rest.remove_prefix(end + 1);
    for (const auto& [letter, name] : kNames) {
      if (file.starts_with(letter)) files.texts[name] = file.substr(1);
    }
  }
  return std::string(rest.substr(0, utf8_prefix(rest)));
}

void use(const data::hf::Tokenizer& tokenizer, const std::string& text) {
  const auto ids = tokenizer.encode_whole(text);
  for (const auto id : ids) {
    require(id >= 0 && id < tokenizer.vocabulary(), "a token is one of the vocabulary");
  }
  require(tokenizer.encode_whole(text) == ids, "tokens are a function of the text");
  require(is_utf8(tokenizer.decode(ids)), "decoded text is UTF-8");
  std::vector<std::int64_t> all = {-1, tokenizer.vocabulary()};
  for (std::int64_t id = 0; id < tokenizer.vocabulary(); ++id) all.push_back(id);
  require(is_utf8(tokenizer.decode(all)), "decoded text is UTF-8");
}

}  // namespace

int hf(Bytes bytes) {
  const std::string_view input(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  data::hf::TokenizerFiles files{"tokenizer", {}};
  const std::string text = take_files(input, files);
  if (files.texts.empty()) return 0;
  return accepts("tokenizer", [&] {
    const auto tokenizer = data::hf::make_tokenizer(files);
    if (tokenizer != nullptr) use(*tokenizer, text);
  });
}

}  // namespace performer::fuzz
