#include "performer/data/train_tokenizer.h"

#include <sentencepiece_trainer.h>

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "performer/core/error.h"
#include "performer/core/file.h"
#include "performer/data/byte_source.h"
#include "performer/data/sentence_piece.h"
#include "performer/data/text.h"

namespace performer::data {
namespace {

constexpr std::int64_t kMaxText = std::int64_t{1} << 32;

// Lines with their line feeds.
class Lines final : public sentencepiece::SentenceIterator {
 public:
  explicit Lines(std::string_view text) : rest_(text) { Next(); }
  bool done() const override { return line_.empty(); }
  const std::string& value() const override { return line_; }
  sentencepiece::util::Status status() const override { return {}; }
  void Next() override {
    const std::size_t size = std::min(rest_.find('\n'), rest_.size() - 1) + 1;
    line_ = rest_.empty() ? std::string() : std::string(rest_.substr(0, size));
    rest_.remove_prefix(line_.size());
  }

 private:
  std::string_view rest_;
  std::string line_;
};

std::string train(std::string_view text, const TokenizerOptions& options) {
  const std::unordered_map<std::string, std::string> settings = {
      {"model_type", "unigram"},
      {"vocab_size", std::to_string(options.vocabulary)},
      {"character_coverage", "1.0"},
      {"normalization_rule_name", "identity"},
      {"add_dummy_prefix", "false"},
      {"remove_extra_whitespaces", "false"},
      {"byte_fallback", "true"},
      {"split_digits", "true"},
      {"pad_id", "0"},
      {"bos_id", "1"},
      {"eos_id", "2"},
      {"unk_id", "3"},
      {"control_symbols", "<mask>"},
      {"user_defined_symbols", "\n"},
      {"input_sentence_size", "10000000"},
      {"shuffle_input_sentence", "false"},
      {"num_threads", std::to_string(options.threads)},
      {"minloglevel", "2"},
  };
  Lines lines(text);
  std::string model;
  const auto status = sentencepiece::SentencePieceTrainer::Train(settings, &lines, &model);
  if (!status.ok()) {
    std::string why = status.ToString();
    const std::size_t end = why.rfind("] ");  // after the place in the library's source
    if (end != std::string::npos) why = why.substr(end + 2);
    while (!why.empty() && why.back() == '.') why.pop_back();
    fail(ExitCode::kBadInput, "tokenizer: {}; try another --vocabulary (now {})", why,
         options.vocabulary);
  }
  return model;
}

}  // namespace

TokenizerResult train_tokenizer(const std::vector<std::string>& files, const std::string& output,
                                const TokenizerOptions& options) {
  std::string text;
  for (const auto& file : files) {
    text += read_all(file, kMaxText);
    if (!text.empty() && text.back() != '\n') text += '\n';
  }
  if (count_words(text) == 0)
    fail(ExitCode::kBadInput, "{}: there is no text in it", files.front());
  const SentencePiece pieces(train(text, options), output);
  write_file_atomic(output, pieces.bytes());
  TokenizerResult result;
  result.vocabulary = pieces.vocabulary();
  result.bytes = static_cast<std::int64_t>(text.size());
  result.words = count_words(text);
  for (Lines lines(text); !lines.done(); lines.Next()) {
    result.tokens += std::ssize(pieces.encode(lines.value()));
  }
  return result;
}

}  // namespace performer::data
