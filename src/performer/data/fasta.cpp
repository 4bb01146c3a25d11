#include "performer/data/fasta.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "performer/core/error.h"
#include "performer/core/log.h"
#include "performer/data/alphabet.h"

namespace performer::data {
namespace {

constexpr std::int64_t kDnaRecords = 100, kDnaResidues = 100;  // looked at, and needed for a word
constexpr std::size_t kDnaSeen = 100'000;                      // of each
constexpr std::string_view kBases = "ACGTUN";

}  // namespace

std::string FastaRecord::id() const {
  const std::size_t begin = header.find_first_not_of(" \t");
  if (begin == std::string::npos) return {};
  return header.substr(begin, header.find_first_of(" \t", begin) - begin);
}

bool FastaReader::refill() {
  rest_ = source_.next();
  counts_.bytes += static_cast<std::int64_t>(rest_.size());
  return !rest_.empty();
}

bool FastaReader::next(FastaRecord& record, const FastaBound& bound) {
  bound_ = bound;
  for (;;) {
    if (rest_.empty() && !refill()) {
      if (!open_) {
        if (counts_.records < kDnaRecords) warn_of_dna();
        return false;
      }
      end_record(record);
      open_ = false;
      if (!record.tokens.empty()) return true;
      continue;
    }
    if (state_ == State::kLineStart && rest_.front() == '>') {
      if (open_) {
        end_record(record);
        open_ = false;
        if (!record.tokens.empty()) return true;
      }
      record.header.clear();
      record.tokens.clear();
      open_ = true;
      state_ = State::kHeader;
      rest_ = rest_.subspan(1);
      column_ = 1;
      continue;
    }
    if (state_ == State::kLineStart) state_ = State::kSequence;
    step(record);
  }
}

// Takes what is left of this line, or of the piece.
bool FastaReader::step(FastaRecord& record) {
  const auto* end = static_cast<const char*>(std::memchr(rest_.data(), '\n', rest_.size()));
  const std::size_t size =
      end == nullptr ? rest_.size() : static_cast<std::size_t>(end - rest_.data());
  const auto part = rest_.first(size);
  if (state_ == State::kHeader) {
    take_header(record, part);
  } else {
    take_sequence(record, part);
  }
  column_ += static_cast<std::int64_t>(size);
  rest_ = rest_.subspan(size);
  if (end == nullptr) return false;
  rest_ = rest_.subspan(1);
  state_ = State::kLineStart;
  ++line_;
  column_ = 0;
  return true;
}

void FastaReader::take_header(FastaRecord& record, std::span<const char> part) {
  for (std::size_t i = 0; i < part.size(); ++i) {
    const auto byte = static_cast<unsigned char>(part[i]);
    if ((byte < 0x20 && byte != '\t' && byte != '\r') || byte == 0x7F) refuse(part, i);
  }
  if (part.size() > kMaxHeader - record.header.size()) {
    refuse_long("a header of more than 2^24 bytes; is this a FASTA file?");
  }
  record.header.append(part.data(), part.size());
}

void FastaReader::take_sequence(FastaRecord& record, std::span<const char> part) {
  if (!part.empty() && part.back() == '\r') part = part.first(part.size() - 1);
  const std::size_t before = record.tokens.size();
  const auto room = static_cast<std::size_t>(bound_.residues) - before;
  if (open_ && stops_ == 0 && part.size() <= room) {
    record.tokens.resize(before + part.size());
    std::uint8_t* out = record.tokens.data() + before;
    unsigned seen = 0;
    for (std::size_t i = 0; i < part.size(); ++i) {
      out[i] = alphabet::kMeaning[static_cast<unsigned char>(part[i])];
      seen |= out[i];
    }
    if (seen < alphabet::kSpecial) return;
    record.tokens.resize(before);
  }
  take_unusual(record, part);
}

// The same, byte by byte, for lines with anything but residues.
void FastaReader::take_unusual(FastaRecord& record, std::span<const char> part) {
  for (std::size_t i = 0; i < part.size(); ++i) {
    const std::uint8_t meaning = alphabet::kMeaning[static_cast<unsigned char>(part[i])];
    if (meaning == alphabet::kBlank) continue;
    if (!open_ || meaning >= alphabet::kInvalid) refuse(part, i);
    if (meaning == alphabet::kGap) {
      ++counts_.gaps;
    } else if (meaning == alphabet::kStop) {
      ++stops_;
    } else {
      counts_.inner_stops += stops_;
      for (; stops_ > 0; --stops_) push(record, alphabet::kX);
      const bool unknown = meaning == alphabet::kUnknown;
      counts_.unknown += unknown ? 1 : 0;
      push(record, unknown ? alphabet::kX : meaning);
    }
  }
}

void FastaReader::push(FastaRecord& record, std::uint8_t token) {
  if (std::ssize(record.tokens) >= bound_.residues) refuse_long(bound_.problem);
  record.tokens.push_back(token);
}

void FastaReader::require_records() const {
  if (counts_.records > 0) return;
  fail(ExitCode::kBadInput, "{}: there is no sequence in it ({} bytes, {} empty records)",
       source_.name(), counts_.bytes, counts_.blank);
}

void FastaReader::refuse_long(std::string_view problem) const {
  fail(ExitCode::kBadInput, "{}:{}: {}", source_.name(), line_, problem);
}

// A gene read as protein trains without a complaint: A, C, G, T and N are amino acids too.
void FastaReader::look_for_dna(const FastaRecord& record) {
  const auto is_base = [](std::uint8_t token) {
    return kBases.find(alphabet::kLetters[token - alphabet::kFirstLetter]) != kBases.npos;
  };
  const auto seen = std::span(record.tokens).first(std::min(record.tokens.size(), kDnaSeen));
  looks_like_dna_ = std::ranges::all_of(seen, is_base);
  if (counts_.records == kDnaRecords) warn_of_dna();
}

void FastaReader::warn_of_dna() {
  if (!std::exchange(looks_like_dna_, false) || counts_.residues < kDnaResidues) return;
  log_warning(
      "{}: {} hold the letters A, C, G, T, U and N alone and look like DNA or RNA; they are read "
      "as "
      "proteins, A as alanine: translate genes first",
      source_.name(),
      counts_.records == 1 ? std::string("its sequence")
                           : fmt::format("its first {} sequences", counts_.records));
}

void FastaReader::end_record(FastaRecord& record) {
  while (!record.header.empty() && record.header.back() == '\r') record.header.pop_back();
  counts_.end_stops += stops_;
  stops_ = 0;
  if (record.tokens.empty()) {
    ++counts_.blank;
    return;
  }
  ++counts_.records;
  counts_.residues += static_cast<std::int64_t>(record.tokens.size());
  if (looks_like_dna_) look_for_dna(record);
}

void FastaReader::refuse(std::span<const char> part, std::size_t at) const {
  const auto byte = static_cast<unsigned char>(part[at]);
  const std::int64_t column = column_ + static_cast<std::int64_t>(at);
  const std::int64_t offset =
      counts_.bytes - static_cast<std::int64_t>(rest_.size()) + static_cast<std::int64_t>(at);
  if (alphabet::kMeaning[byte] == alphabet::kBinary) {
    fail(ExitCode::kBadInput, "{}: byte 0x{:02x} at offset {} is no text; is this a FASTA file?",
         source_.name(), byte, offset);
  }
  if (!open_) {
    fail(ExitCode::kBadInput, "{}:{}:{}: text before the first '>'; is this a FASTA file?",
         source_.name(), line_, column + 1);
  }
  fail(ExitCode::kBadInput,
       "{}:{}:{}: '{}' is not an amino acid; allowed are {}, J (read as X), gaps - . and stops *",
       source_.name(), line_, column + 1, static_cast<char>(byte), alphabet::kLetters);
}

}  // namespace performer::data
