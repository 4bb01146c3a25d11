#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "performer/data/hf/normalizer.h"

namespace performer::data::hf {

/// Spaces between tokens, but not before one that begins with `prefix`, which goes.
struct JoinPieces {
  std::string prefix = "##";
  bool clean_up = true;  // no space before a full stop, and the like
};
/// byte_letters.h, backwards; what is then not UTF-8 becomes U+FFFD.
struct FromByteLetters {};
/// <0x41> becomes a byte; bytes in a row that are not UTF-8 become U+FFFD, each one.
struct FromBytes {};
/// All tokens become one.
struct Fuse {};
/// At most `start` times `letter` from the beginning of a token, and `stop` times from its end.
struct Strip {
  char32_t letter = ' ';
  std::int64_t start = 0, stop = 0;
};
/// The letter becomes a space, and of the first token nothing if `drop_first`.
struct FromMetaspace {
  std::string letter;
  bool drop_first = true;
};

using DecoderStep =
    std::variant<JoinPieces, FromByteLetters, Replace, FromBytes, Fuse, Strip, FromMetaspace>;

/// Makes text of the texts of tokens. Without steps it puts spaces between them.
class Decoder {
 public:
  Decoder() = default;
  explicit Decoder(std::vector<DecoderStep> steps) : steps_(std::move(steps)) {}
  std::string decode(std::vector<std::string> tokens) const;

 private:
  std::vector<DecoderStep> steps_;
};

}  // namespace performer::data::hf
