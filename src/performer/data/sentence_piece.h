#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sentencepiece {
class SentencePieceProcessor;
}

namespace performer::data {

/// A trained SentencePiece model: subwords of text, and back.
class SentencePiece {
 public:
  /// `model` is the content of a .model file, `name` what errors call it (kBadInput).
  SentencePiece(std::string model, const std::string& name);
  ~SentencePiece();
  SentencePiece(const SentencePiece&) = delete;
  SentencePiece& operator=(const SentencePiece&) = delete;

  std::vector<std::int64_t> encode(std::string_view text) const;
  std::string decode(std::span<const std::int64_t> tokens) const;

  std::int64_t vocabulary() const;
  std::int64_t pad() const;
  std::int64_t bos() const;
  std::int64_t eos() const;
  /// The piece <mask>; -1 where the model has none.
  std::int64_t mask() const;
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
  std::unique_ptr<sentencepiece::SentencePieceProcessor> processor_;
};

}  // namespace performer::data
