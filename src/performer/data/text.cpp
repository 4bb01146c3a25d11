#include "performer/data/text.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "performer/core/error.h"
#include "performer/data/byte_source.h"
#include "performer/data/encoding.h"
#include "performer/data/sentence_piece.h"

namespace performer::data {
namespace {

constexpr std::int64_t kMaxText = std::int64_t{1} << 31;
constexpr std::int64_t kMaxModel = std::int64_t{1} << 28;

template <class T>
class StoredStream final : public TokenStream {
 public:
  StoredStream(std::vector<T> tokens, std::int64_t ends, double multiplier)
      : tokens_(std::move(tokens)), ends_(ends), multiplier_(multiplier) {}

  std::int64_t size() const override { return std::ssize(tokens_); }
  std::int64_t ends() const override { return ends_; }
  double word_multiplier() const override { return multiplier_; }
  void read(std::int64_t begin, std::span<std::int64_t> out) const override {
    std::copy_n(tokens_.begin() + begin, out.size(), out.begin());
  }

 private:
  std::vector<T> tokens_;
  std::int64_t ends_;
  double multiplier_;
};

template <class T>
void append_tokens(std::string_view text, const TokenSpace& space, std::vector<T>& tokens) {
  while (!text.empty()) {
    const std::string_view part = first_lines(text);
    for (const std::int64_t token : space.encode(part)) tokens.push_back(static_cast<T>(token));
    text.remove_prefix(part.size());
  }
}

template <class T>
std::unique_ptr<TokenStream> read_texts(const std::vector<std::string>& files,
                                        const TokenSpace& space) {
  std::vector<T> tokens = {static_cast<T>(space.eos)};
  std::int64_t words = 0, left = kMaxText;
  for (const auto& file : files) {
    const std::string text = read_all(file, left);
    if (text.empty()) fail(ExitCode::kBadInput, "{}: there is no text in it", file);
    if (space.kind != "bytes") check_utf8_lines(text, file);
    tokens.reserve(tokens.size() + (space.kind == "bytes" ? text.size() + 1 : text.size() / 3));
    append_tokens(text, space, tokens);
    tokens.push_back(static_cast<T>(space.eos));
    words += count_words(text);
    left -= std::ssize(text);
  }
  const std::int64_t ends = std::ssize(files) + 1;
  const auto made = static_cast<double>(std::ssize(tokens) - ends);
  const double multiplier = words > 0 ? made / static_cast<double>(words) : 0.0;
  return std::make_unique<StoredStream<T>>(std::move(tokens), ends, multiplier);
}

}  // namespace

std::int64_t count_words(std::string_view text) {
  std::int64_t words = 0;
  bool inside = false;
  for (const char c : text) {
    const bool blank = c == ' ' || (c >= '\t' && c <= '\r');
    words += !blank && !inside ? 1 : 0;
    inside = !blank;
  }
  return words;
}

std::string_view first_lines(std::string_view text) {
  constexpr std::size_t kPart = std::size_t{1} << 20;
  if (text.size() <= kPart) return text;
  std::size_t feed = text.rfind('\n', kPart - 1);
  if (feed == std::string_view::npos) feed = text.find('\n', kPart);
  return text.substr(0, feed == std::string_view::npos ? feed : feed + 1);
}

std::unique_ptr<TokenStream> open_text(const std::vector<std::string>& files,
                                       const TokenSpace& space) {
  if (space.vocabulary <= std::numeric_limits<std::uint16_t>::max()) {
    return read_texts<std::uint16_t>(files, space);
  }
  return read_texts<std::uint32_t>(files, space);
}

TokenSpace text_space(const DataConfig& config) {
  if (config.tokenizer == "bytes") return byte_space();
  TokenSpace space;
  space.kind = "sentencepiece";
  space.pieces = std::make_shared<const SentencePiece>(
      read_all(config.tokenizer, kMaxModel, Content::kBinary), config.tokenizer);
  const SentencePiece& pieces = *space.pieces;
  space.vocabulary = pieces.vocabulary();
  space.pad = pieces.pad();
  space.bos = pieces.bos();
  space.eos = space.start = pieces.eos();
  space.mask = pieces.mask();
  // `performer data tokenizer` puts the specials first: pad, bos, eos, unk, mask.
  space.first_regular = std::max({space.pad, space.bos, space.eos, space.mask}) + 1;
  space.regular = space.vocabulary - space.first_regular;
  if (space.eos < 0 || space.regular < 1 || (config.objective == "masked" && space.mask < 0)) {
    fail(ExitCode::kBadInput, "{}: has no EOS{}; make one with `performer data tokenizer`",
         config.tokenizer, config.objective == "masked" ? " or no <mask>" : "");
  }
  return space;
}

}  // namespace performer::data
