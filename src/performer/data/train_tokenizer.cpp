#include "performer/data/train_tokenizer.h"

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "performer/core/error.h"
#include "performer/core/file.h"
#include "performer/data/byte_source.h"
#include "performer/data/encoding.h"
#include "performer/data/pieces_process.h"
#include "performer/data/sentence_piece.h"
#include "performer/data/text.h"

namespace performer::data {
namespace {

constexpr std::int64_t kMaxTokenizerText = std::int64_t{1} << 32;

std::string train(std::string_view text, const TokenizerOptions& options) {
  const std::array settings = {pieces::TrainSettings{options.vocabulary, options.threads}};
  pieces::Process process;
  auto reply = process.ask_with_text(pieces::Ask::kTrain, std::as_bytes(std::span(settings)), text);
  if (reply.outcome == pieces::Outcome::kLost) {
    fail(ExitCode::kFailure, "tokenizer: {}; nothing was written", reply.text);
  }
  if (reply.outcome == pieces::Outcome::kRefused) {
    fail(ExitCode::kBadInput, "tokenizer: {}; try another --vocabulary (now {})", reply.text,
         options.vocabulary);
  }
  return std::move(reply.text);
}

}  // namespace

TokenizerResult train_tokenizer(const std::vector<std::string>& files, const std::string& output,
                                const TokenizerOptions& options) {
  AtomicFile out(output);  // what cannot be written is known before minutes of training
  std::string text;
  for (const auto& file : files) {
    const std::string more = read_all(file, kMaxTokenizerText - std::ssize(text));
    check_utf8_lines(more, file);
    text += more;
    if (!text.empty() && text.back() != '\n') text += '\n';
  }
  if (count_words(text) == 0)
    fail(ExitCode::kBadInput, "{}: there is no text in it", files.front());
  const SentencePiece pieces(train(text, options), output);
  out.writer().write(pieces.bytes());
  out.commit();
  TokenizerResult result;
  result.vocabulary = pieces.vocabulary();
  result.bytes = static_cast<std::int64_t>(text.size());
  result.words = count_words(text);
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view part = first_lines(rest);
    result.tokens += std::ssize(pieces.encode(part));
    rest.remove_prefix(part.size());
  }
  return result;
}

}  // namespace performer::data
