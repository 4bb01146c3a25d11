#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "performer/data/byte_source.h"
#include "performer/data/fasta_counts.h"

namespace performer::data {

struct FastaRecord {
  std::string header;                // without '>' and the end of the line
  std::vector<std::uint8_t> tokens;  // alphabet.h's, no specials

  /// First word of the header.
  std::string id() const;
};

/// The most residues a record may have, and what a refusal says of more.
struct FastaBound {
  std::int64_t residues = std::int64_t{1} << 30;
  std::string_view problem = "a sequence of more than 2^30 residues, the longest that is read";
};

/// Records of a FASTA file one after the other; memory of the longest one. Lower case, CRLF, blank
/// lines and a missing last line end are taken as they come. kBadInput, with place, for text before
/// the first '>', letters outside the alphabet, bytes that are no text and what exceeds a bound.
/// Warns once where the first records hold the letters of DNA alone.
class FastaReader {
 public:
  static constexpr std::size_t kMaxHeader = std::size_t{1} << 24;

  explicit FastaReader(ByteSource& source) : source_(source) {}

  /// The next record with residues; false at the end.
  bool next(FastaRecord& record, const FastaBound& bound = {});

  const FastaCounts& counts() const { return counts_; }

  /// kBadInput where no record had residues; to be asked at the end.
  void require_records() const;

 private:
  enum class State : std::uint8_t { kLineStart, kHeader, kSequence };

  bool refill();
  bool step(FastaRecord& record);
  void take_header(FastaRecord& record, std::span<const char> part);
  void take_sequence(FastaRecord& record, std::span<const char> part);
  void take_unusual(FastaRecord& record, std::span<const char> part);
  void push(FastaRecord& record, std::uint8_t token);
  void end_record(FastaRecord& record);
  void look_for_dna(const FastaRecord& record);
  void warn_of_dna();
  [[noreturn]] void refuse_long(std::string_view problem) const;
  [[noreturn]] void refuse(std::span<const char> part, std::size_t at) const;

  ByteSource& source_;
  FastaCounts counts_;
  std::span<const char> rest_;
  State state_ = State::kLineStart;
  FastaBound bound_;
  bool looks_like_dna_ = true;
  bool open_ = false;  // a '>' was read and its record not yet given
  std::int64_t line_ = 1;
  std::int64_t column_ = 0;  // bytes of this line before rest_
  std::int64_t stops_ = 0;   // * whose place, end or inside, is not known yet
};

}  // namespace performer::data
