#include "performer/data/fasta.h"

#include <cctype>
#include <cstring>

#include "performer/core/error.h"
#include "performer/data/alphabet.h"

namespace performer::data {

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

bool FastaReader::next(FastaRecord& record) {
  for (;;) {
    if (rest_.empty() && !refill()) {
      if (!open_) return false;
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
  record.header.append(part.data(), part.size());
}

void FastaReader::take_sequence(FastaRecord& record, std::span<const char> part) {
  if (!part.empty() && part.back() == '\r') part = part.first(part.size() - 1);
  const std::size_t before = record.tokens.size();
  if (open_ && stops_ == 0) {
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
      for (; stops_ > 0; --stops_) record.tokens.push_back(alphabet::kX);
      const bool unknown = meaning == alphabet::kUnknown;
      counts_.unknown += unknown ? 1 : 0;
      record.tokens.push_back(unknown ? alphabet::kX : meaning);
    }
  }
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
       "{}:{}:{}: '{}' is no amino acid; allowed are {}, J (read as X), gaps - . and stops *",
       source_.name(), line_, column + 1, static_cast<char>(byte), alphabet::kLetters);
}

}  // namespace performer::data
