#include "performer/data/sentence_piece.h"

#include <sentencepiece_processor.h>

#include <algorithm>
#include <utility>

#include "performer/core/error.h"

namespace performer::data {

SentencePiece::SentencePiece(std::string model, const std::string& name)
    : bytes_(std::move(model)),
      processor_(std::make_unique<sentencepiece::SentencePieceProcessor>()) {
  const auto status = processor_->LoadFromSerializedProto(bytes_);
  if (!status.ok() || processor_->GetPieceSize() <= 0) {
    fail(ExitCode::kBadInput,
         "{}: is no SentencePiece model; make one with `performer data tokenizer`", name);
  }
}

SentencePiece::~SentencePiece() = default;

std::vector<std::int64_t> SentencePiece::encode(std::string_view text) const {
  std::vector<int> ids;
  const auto status = processor_->Encode({text.data(), text.size()}, &ids);
  if (!status.ok()) fail(ExitCode::kBadInput, "tokenizer: {}", status.ToString());
  return {ids.begin(), ids.end()};
}

std::string SentencePiece::decode(std::span<const std::int64_t> tokens) const {
  std::vector<int> ids;
  ids.reserve(tokens.size());
  for (const std::int64_t token : tokens) {
    if (token >= 0 && token < vocabulary() && token != mask())
      ids.push_back(static_cast<int>(token));
  }
  std::string text;
  const auto status = processor_->Decode(ids, &text);
  if (!status.ok()) fail(ExitCode::kBadInput, "tokenizer: {}", status.ToString());
  return text;
}

std::int64_t SentencePiece::vocabulary() const { return processor_->GetPieceSize(); }
std::int64_t SentencePiece::pad() const { return processor_->pad_id(); }
std::int64_t SentencePiece::bos() const { return processor_->bos_id(); }
std::int64_t SentencePiece::eos() const { return processor_->eos_id(); }

std::int64_t SentencePiece::mask() const {
  const int id = processor_->PieceToId("<mask>");
  return processor_->IsUnknown(id) ? -1 : id;
}

}  // namespace performer::data
