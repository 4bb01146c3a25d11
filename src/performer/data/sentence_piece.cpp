#include "performer/data/sentence_piece.h"

#include <cstring>
#include <utility>

#include "performer/core/error.h"
#include "performer/data/pieces_process.h"

namespace performer::data {

SentencePiece::SentencePiece(std::string model, const std::string& name)
    : bytes_(std::move(model)), process_(std::make_unique<pieces::Process>()) {
  const auto reply = process_->ask(pieces::Ask::kLoad, pieces::bytes_of(bytes_));
  // A damaged model may end the process.
  const bool done = reply.outcome == pieces::Outcome::kDone;
  if (!done || reply.text.size() != sizeof facts_) {
    fail(ExitCode::kBadInput,
         "{}: is no SentencePiece model ({}); make one with `performer data tokenizer`", name,
         done ? "not understood" : reply.text);
  }
  std::memcpy(&facts_, reply.text.data(), sizeof facts_);
}

SentencePiece::~SentencePiece() = default;

std::string SentencePiece::ask(pieces::Ask ask, std::span<const std::byte> request) const {
  const std::scoped_lock lock(one_at_a_time_);
  auto reply = process_->ask(ask, request);
  if (reply.outcome != pieces::Outcome::kDone) {
    const bool refused = reply.outcome == pieces::Outcome::kRefused;
    fail(refused ? ExitCode::kBadInput : ExitCode::kFailure, "tokenizer: {}", reply.text);
  }
  return std::move(reply.text);
}

std::vector<std::int64_t> SentencePiece::encode(std::string_view text) const {
  const std::string answer = ask(pieces::Ask::kEncode, pieces::bytes_of(text));
  std::vector<std::int32_t> ids(answer.size() / sizeof(std::int32_t));
  if (!ids.empty()) std::memcpy(ids.data(), answer.data(), ids.size() * sizeof(std::int32_t));
  return {ids.begin(), ids.end()};
}

std::string SentencePiece::decode(std::span<const std::int64_t> tokens) const {
  std::vector<std::int32_t> ids;
  ids.reserve(tokens.size());
  for (const std::int64_t token : tokens) {
    if (token >= 0 && token < vocabulary() && token != mask())
      ids.push_back(static_cast<std::int32_t>(token));
  }
  return ask(pieces::Ask::kDecode, std::as_bytes(std::span(ids)));
}

}  // namespace performer::data
