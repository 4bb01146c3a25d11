#include "performer/data/text.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "performer/core/error.h"
#include "performer/data/byte_source.h"
#include "performer/data/sentence_piece.h"

namespace performer::data {
namespace {

constexpr std::int64_t kMaxText = std::int64_t{1} << 31;
constexpr std::int64_t kMaxModel = std::int64_t{1} << 28;

template <class T>
class StoredStream final : public TokenStream {
 public:
  StoredStream(std::vector<T> tokens, double multiplier)
      : tokens_(std::move(tokens)), multiplier_(multiplier) {}

  std::int64_t size() const override { return std::ssize(tokens_); }
  double word_multiplier() const override { return multiplier_; }
  void read(std::int64_t begin, std::span<std::int64_t> out) const override {
    std::copy_n(tokens_.begin() + begin, out.size(), out.begin());
  }

 private:
  std::vector<T> tokens_;
  double multiplier_;
};

template <class T>
std::unique_ptr<TokenStream> store(std::string_view text, const TokenSpace& space) {
  std::vector<T> tokens;
  tokens.reserve(space.kind == "bytes" ? text.size() + 2 : text.size() / 3);
  tokens.push_back(static_cast<T>(space.eos));
  // Line by line: one lattice over a whole book would take memory without end.
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size() - 1) + 1;
    for (const std::int64_t token : space.encode(text.substr(begin, end - begin))) {
      tokens.push_back(static_cast<T>(token));
    }
    begin = end;
  }
  const auto made = static_cast<double>(tokens.size() - 1);
  tokens.push_back(static_cast<T>(space.eos));
  const std::int64_t words = count_words(text);
  const double multiplier = words > 0 ? made / static_cast<double>(words) : 0.0;
  return std::make_unique<StoredStream<T>>(std::move(tokens), multiplier);
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

std::unique_ptr<TokenStream> open_text(const std::string& path, const TokenSpace& space) {
  const std::string text = read_all(path, kMaxText);
  if (text.empty()) fail(ExitCode::kBadInput, "{}: there is no text in it", path);
  if (space.vocabulary <= std::numeric_limits<std::uint16_t>::max()) {
    return store<std::uint16_t>(text, space);
  }
  return store<std::uint32_t>(text, space);
}

TokenSpace text_space(const DataConfig& config) {
  if (config.tokenizer == "bytes") return byte_space();
  TokenSpace space;
  space.kind = "sentencepiece";
  space.pieces = std::make_shared<const SentencePiece>(read_all(config.tokenizer, kMaxModel),
                                                       config.tokenizer);
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
