// The program performer-pieces: SentencePiece for the library, in a process of its own. Its
// standard input is a socket; it answers the asks of pieces_frame.h until the other side closes.
#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>
#include <sys/prctl.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <exception>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "performer/data/pieces_frame.h"

namespace {

using namespace performer::data::pieces;  // of which this program is the other half

constexpr int kSocket = STDIN_FILENO;
constexpr std::size_t kMaxLine = std::size_t{1} << 16;

struct Refused {
  std::string why;
};

void check(const sentencepiece::util::Status& status) {
  if (status.ok()) return;
  std::string why = status.ToString();
  const std::size_t place = why.rfind("] ");  // after the place in the library's source
  if (place != std::string::npos) why = why.substr(place + 2);
  while (!why.empty() && why.back() == '.') why.pop_back();
  if (why.empty()) why = "SentencePiece can make nothing of it, and does not say why";
  throw Refused{why};
}

// Up to the end of the first line; a long line is cut between two characters of UTF-8.
std::size_t line_length(std::string_view text) {
  std::size_t length = std::min(text.find('\n'), text.size() - 1) + 1;
  if (length <= kMaxLine) return length;
  length = kMaxLine;
  const auto inside = [&] { return (static_cast<unsigned char>(text[length]) & 0xC0U) == 0x80U; };
  while (length > kMaxLine - 3 && inside()) --length;
  return length;
}

// The lines of the socket's stream, with their line feeds; long ones in parts, as they are encoded.
class StreamLines final : public sentencepiece::SentenceIterator {
 public:
  StreamLines() { Next(); }
  bool done() const override { return line_.empty(); }
  const std::string& value() const override { return line_; }
  sentencepiece::util::Status status() const override { return {}; }
  void Next() override {
    line_ = std::exchange(rest_, {});
    while (!line_.ends_with('\n') && line_.size() <= kMaxLine && (begin_ < end_ || refill())) {
      const auto* first = buffer_.data() + begin_;
      const auto* feed = static_cast<const char*>(std::memchr(first, '\n', end_ - begin_));
      const std::size_t size =
          feed != nullptr ? static_cast<std::size_t>(feed - first) + 1 : end_ - begin_;
      line_.append(first, size);
      begin_ += size;
    }
    const std::size_t length = line_length(line_);
    rest_ = line_.substr(length);
    line_.resize(length);
  }
  // Takes what is left of the stream, so that who sends it comes to its end.
  void drain() {
    while (refill()) continue;
  }

 private:
  bool refill() {
    ssize_t n = 0;
    do {
      n = ::read(kSocket, buffer_.data(), buffer_.size());
    } while (n < 0 && errno == EINTR);
    begin_ = 0;
    end_ = static_cast<std::size_t>(std::max<ssize_t>(n, 0));
    return n > 0;
  }

  std::vector<char> buffer_ = std::vector<char>(1 << 16);
  std::size_t begin_ = 0, end_ = 0;
  std::string line_, rest_;  // rest_: of a line that was cut
};

std::string train(const std::string& request) {
  TrainSettings settings{};
  if (request.size() != sizeof settings) throw Refused{"no settings"};
  std::memcpy(&settings, request.data(), sizeof settings);
  // Training takes minutes: it ends with the process that asked for it, however that ends.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const std::unordered_map<std::string, std::string> words = {
      {"model_type", "unigram"},
      {"vocab_size", std::to_string(settings.vocabulary)},
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
      {"max_sentence_length", std::to_string(kMaxLine)},  // longer ones would be left out
      {"shuffle_input_sentence", "false"},
      {"num_threads", std::to_string(settings.threads)},
      {"minloglevel", "2"},
  };
  StreamLines lines;
  std::string model;
  const auto status = sentencepiece::SentencePieceTrainer::Train(words, &lines, &model);
  lines.drain();
  check(status);
  return model;
}

class Server {
 public:
  std::string answer(Ask ask, const std::string& request) {
    switch (ask) {
      case Ask::kLoad:
        return load(request);
      case Ask::kEncode:
        return encode(request);
      case Ask::kDecode:
        return decode(request);
      case Ask::kTrain:
        return train(request);
    }
    throw Refused{"an unknown request"};
  }

 private:
  std::string load(const std::string& model) {
    check(processor_.LoadFromSerializedProto(model));
    if (processor_.GetPieceSize() <= 0) throw Refused{"there are no pieces in it"};
    const int mask = processor_.PieceToId("<mask>");
    const std::array facts = {Facts{processor_.GetPieceSize(), processor_.pad_id(),
                                    processor_.bos_id(), processor_.eos_id(),
                                    processor_.IsUnknown(mask) ? -1 : mask}};
    const auto bytes = std::as_bytes(std::span(facts));
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  // Line by line: one lattice over a whole book would take memory without end.
  std::string encode(std::string_view text) const {
    std::string tokens;
    std::vector<int> ids;
    while (!text.empty()) {
      const std::size_t length = line_length(text);
      check(processor_.Encode({text.data(), length}, &ids));
      const auto bytes = std::as_bytes(std::span(ids));
      tokens.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      text.remove_prefix(length);
    }
    return tokens;
  }

  std::string decode(std::string_view tokens) const {
    std::vector<int> ids(tokens.size() / sizeof(int));
    if (!ids.empty()) std::memcpy(ids.data(), tokens.data(), ids.size() * sizeof(int));
    std::string text;
    check(processor_.Decode(ids, &text));
    return text;
  }

  sentencepiece::SentencePieceProcessor processor_;
};

bool reply(Answer answer, std::string_view text) {
  return write_frame(kSocket, answer, bytes_of(text));
}

bool serve_one(Server& server, const FrameHead& head) {
  if (head.bytes > kMaxFrame) return false;
  try {
    std::string request(head.bytes, '\0');
    if (!receive_all(kSocket, std::as_writable_bytes(std::span(request)))) return false;
    return reply(Answer::kDone, server.answer(static_cast<Ask>(head.kind), request));
  } catch (const Refused& refused) {
    return reply(Answer::kRefused, refused.why);
  } catch (const std::exception& error) {
    return reply(Answer::kRefused, error.what());
  }
}

}  // namespace

int main() {
  // A signal for the whole group (Ctrl-C) is for the process that asked: it may save first. This
  // one ends when the other side closes.
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2}) std::signal(number, SIG_IGN);
  std::set_new_handler([] { ::_exit(kNoMemory); });
  Server server;
  std::array<FrameHead, 1> head{};
  while (receive_all(kSocket, std::as_writable_bytes(std::span(head)))) {
    if (!serve_one(server, head[0])) break;
  }
  return 0;
}
