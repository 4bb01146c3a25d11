#include "performer/data/hf/pre_tokenizer.h"

#include "performer/data/hf/byte_letters.h"
#include "performer/data/hf/normalizer.h"
#include "performer/data/hf/unicode.h"

namespace performer::data::hf {

/// One walk: a piece goes through step `index`, and what that makes of it through the next ones.
class PreTokenizer::Steps {
 public:
  Steps(const std::vector<PreTokenizerStep>& steps, const Take& take)
      : steps_(steps), take_(take) {}

  void run(Piece piece, std::size_t index) {
    if (piece.text.empty()) return;
    if (index == steps_.size()) return take_(piece.text);
    std::visit([&](const auto& step) { run_step(step, piece, index + 1); }, steps_[index]);
  }

 private:
  // The part from `begin` to `end` to the steps from `next` on.
  void pass(Piece piece, std::size_t begin, std::size_t end, std::size_t next) {
    run({piece.text.substr(begin, end - begin), piece.at_start && begin == 0}, next);
  }

  enum class Letter : std::uint8_t { kInside, kAlone, kGone };

  // Splits by what `kind` says of each letter.
  template <class Kind>
  void split_letters(Piece piece, std::size_t next, const Kind& kind) {
    const auto text = piece.text;
    std::size_t begin = 0;
    for (std::size_t i = 0; i < text.size();) {
      const std::size_t at = i;
      const Letter letter = kind(next_letter(text, i));
      if (letter == Letter::kInside) continue;
      pass(piece, begin, at, next);
      if (letter == Letter::kAlone) pass(piece, at, i, next);
      begin = i;
    }
    pass(piece, begin, text.size(), next);
  }

  void run_step(BertSplit /*step*/, Piece piece, std::size_t next) {
    split_letters(piece, next, [](char32_t c) {
      if (is_space(c)) return Letter::kGone;
      return is_punctuation(c) ? Letter::kAlone : Letter::kInside;
    });
  }

  void run_step(const SpaceSplit& step, Piece piece, std::size_t next) {
    split_letters(piece, next, [&](char32_t c) {
      const bool separator = step.separators && c >= 0x1C && c <= 0x1F;
      return separator || is_space(c) ? Letter::kGone : Letter::kInside;
    });
  }

  void run_step(const PatternSplit& step, Piece piece, std::size_t next) {
    for (std::size_t begin = 0; begin < piece.text.size();) {
      const std::size_t end = word_end(piece.text, begin, step.pattern);
      pass(piece, begin, end, next);
      begin = end;
    }
  }

  void run_step(const DigitSplit& step, Piece piece, std::size_t next) {
    if (step.each) {
      return split_letters(
          piece, next, [](char32_t c) { return is_digit(c) ? Letter::kAlone : Letter::kInside; });
    }
    std::size_t begin = 0;
    bool digits = false;
    for (std::size_t i = 0; i < piece.text.size();) {
      const std::size_t at = i;
      const bool digit = is_digit(next_letter(piece.text, i));
      if (digit != digits) {
        pass(piece, begin, at, next);
        begin = at;
      }
      digits = digit;
    }
    pass(piece, begin, piece.text.size(), next);
  }

  void run_step(const ByteLevel& step, Piece piece, std::size_t next) {
    std::string spaced;
    if (step.prefix_space && !piece.text.starts_with(' ')) {
      spaced = ' ' + std::string(piece.text);
      piece.text = spaced;
    }
    const auto letters = [&](std::size_t begin, std::size_t end) {
      const std::string word = to_byte_letters(piece.text.substr(begin, end - begin));
      run({word, piece.at_start && begin == 0}, next);
    };
    if (!step.split) return letters(0, piece.text.size());
    for (std::size_t begin = 0; begin < piece.text.size();) {
      const std::size_t end = word_end(piece.text, begin, SplitPattern{});
      letters(begin, end);
      begin = end;
    }
  }

  void run_step(const Metaspace& step, Piece piece, std::size_t next) {
    std::string text = replaced(piece.text, {" ", step.letter});
    const bool wanted = step.before == Metaspace::Before::kAlways ||
                        (step.before == Metaspace::Before::kFirst && piece.at_start);
    if (wanted && !text.starts_with(step.letter)) text.insert(0, step.letter);
    piece.text = text;
    if (!step.split) return run(piece, next);
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = std::min(text.find(step.letter, begin + 1), text.size());
      pass(piece, begin, end, next);
      begin = end;
    }
  }

  const std::vector<PreTokenizerStep>& steps_;
  const Take& take_;
};

void PreTokenizer::split(std::string_view text, bool at_start, const Take& take) const {
  Steps(steps_, take).run({text, at_start}, 0);
}

}  // namespace performer::data::hf
