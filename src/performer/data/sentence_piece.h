#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "performer/data/pieces_frame.h"

namespace performer::data {

namespace pieces {
class Process;
}

/// A trained SentencePiece model: subwords of text, and back. The work is done by a process of its
/// own, see pieces_frame.h. Safe from many threads.
class SentencePiece {
 public:
  /// `model` is the content of a .model file, `name` what errors call it (kBadInput).
  SentencePiece(std::string model, const std::string& name);
  ~SentencePiece();
  SentencePiece(const SentencePiece&) = delete;
  SentencePiece& operator=(const SentencePiece&) = delete;

  /// Line by line, and lines of more than 64 KiB in parts of that size.
  std::vector<std::int64_t> encode(std::string_view text) const;
  std::string decode(std::span<const std::int64_t> tokens) const;

  std::int64_t vocabulary() const { return facts_.vocabulary; }
  std::int64_t pad() const { return facts_.pad; }
  std::int64_t bos() const { return facts_.bos; }
  std::int64_t eos() const { return facts_.eos; }
  /// The piece <mask>; -1 where the model has none.
  std::int64_t mask() const { return facts_.mask; }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string ask(pieces::Ask ask, std::span<const std::byte> request) const;

  std::string bytes_;
  pieces::Facts facts_{};
  mutable std::mutex one_at_a_time_;
  std::unique_ptr<pieces::Process> process_;
};

}  // namespace performer::data
