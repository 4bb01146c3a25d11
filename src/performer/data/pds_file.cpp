#include "performer/data/pds_file.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <fstream>

#include "performer/core/error.h"
#include "performer/data/alphabet.h"
#include "performer/data/file_kind.h"

namespace performer::data {
namespace {

constexpr std::int64_t kHeader = sizeof(pds::Header), kFooter = sizeof(pds::Footer);
constexpr std::size_t kIndexPiece = std::size_t{1} << 17;

template <class T>
std::uint32_t crc_of(std::span<const T> values, std::uint32_t before = 0) {
  const auto bytes = std::as_bytes(values);
  return static_cast<std::uint32_t>(
      crc32_z(before, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

// Of a part that ends with its own checksum.
template <class Part>
bool intact(const Part& part) {
  return part.crc == crc_of(std::as_bytes(std::span(&part, 1)).first(offsetof(Part, crc)));
}

template <class T>
void read_into(const RandomAccessFile& file, std::int64_t offset, std::span<T> out) {
  file.read(offset, std::as_writable_bytes(out));
}

template <class T>
T read_part(const RandomAccessFile& file, std::int64_t offset) {
  T part;
  read_into(file, offset, std::span(&part, 1));
  return part;
}

std::uint64_t aligned(std::uint64_t bytes) { return (bytes + 7) / 8 * 8; }

[[noreturn]] void refuse(const std::string& name, const char* what) {
  fail(ExitCode::kCorrupt, "{}: {}; make it again with `performer data build`", name, what);
}

// The zeros before the next part.
bool zeros_between(const RandomAccessFile& file, std::uint64_t begin, std::uint64_t end) {
  std::array<std::byte, pds::kAlign> gap{};
  const auto bytes = std::span(gap).first(end - begin);
  read_into(file, static_cast<std::int64_t>(begin), bytes);
  return std::ranges::all_of(bytes, [](std::byte b) { return b == std::byte{0}; });
}

// A checksum can be made for anything, and a file can change while it is read: a number outside the
// vocabulary must not reach a model.
void check_range(const std::string& name, std::span<const std::uint8_t> tokens) {
  std::uint8_t low = 0xFF, high = 0;
  for (const std::uint8_t token : tokens) {
    low = std::min(low, token);
    high = std::max(high, token);
  }
  if (!tokens.empty() && (low < alphabet::kFirstLetter || high >= alphabet::kVocabulary)) {
    refuse(name, "tokens outside the alphabet");
  }
}

}  // namespace

PdsFile::PdsFile(const std::filesystem::path& path) : name_(path.string()), file_(path) {
  const pds::Footer footer = check_layout();
  num_tokens_ = static_cast<std::int64_t>(footer.tokens);
  read_index(footer);
  read_checksums(footer);
  checked_ = std::vector<std::atomic<bool>>(checksums_.size());
  if (num_tokens_ <= kCheckedAtOnce) verify();
}

// Every number is compared with the size of the file before anything is computed from it.
pds::Footer PdsFile::check_layout() const {
  if (file_.size() < kHeader + kFooter) refuse(name_, "cut short");
  const auto header = read_part<pds::Header>(file_, 0);
  if (header.magic != pds::kMagic) refuse(name_, "is no .pds file");
  if (!intact(header)) refuse(name_, "damaged header");
  if (header.version != pds::kVersion || header.vocabulary != alphabet::kVocabulary) {
    fail(ExitCode::kBadInput,
         "{}: version {} with {} tokens, this program reads version {} with {}", name_,
         header.version, header.vocabulary, pds::kVersion, alphabet::kVocabulary);
  }
  const auto footer = read_part<pds::Footer>(file_, file_.size() - kFooter);
  if (footer.magic != pds::kEndMagic) refuse(name_, "cut short");
  if (!intact(footer) || footer.header_crc != header.crc) refuse(name_, "damaged footer");
  const auto room = static_cast<std::uint64_t>(file_.size());
  if (footer.tokens > room || footer.sequences > room / sizeof(std::uint64_t) ||
      footer.sequences == 0 || footer.sequences > footer.tokens) {
    refuse(name_, "impossible counts");
  }
  const std::uint64_t blocks = (footer.tokens + pds::kBlock - 1) / pds::kBlock;
  const std::uint64_t index = aligned(kHeader + footer.tokens);
  const std::uint64_t checksums = index + footer.sequences * sizeof(std::uint64_t);
  const std::uint64_t end = checksums + blocks * sizeof(std::uint32_t);
  if (footer.index_offset != index || footer.checksums_offset != checksums ||
      aligned(end) + kFooter != room) {
    refuse(name_, "the parts do not fill the file");
  }
  if (!zeros_between(file_, kHeader + footer.tokens, index)) refuse(name_, "damaged index");
  if (!zeros_between(file_, end, aligned(end))) refuse(name_, "damaged checksums");
  return footer;
}

// Piece by piece: a false index is refused before much memory is taken for it.
void PdsFile::read_index(const pds::Footer& footer) {
  std::vector<std::uint64_t> piece(std::min<std::uint64_t>(kIndexPiece, footer.sequences));
  auto offset = static_cast<std::int64_t>(footer.index_offset);
  std::uint64_t before = 0;
  std::uint32_t crc = 0;
  ends_.reserve(footer.sequences);
  while (ends_.size() < footer.sequences) {
    piece.resize(std::min<std::uint64_t>(piece.size(), footer.sequences - ends_.size()));
    read_into(file_, offset, std::span(piece));
    for (const std::uint64_t end : piece) {
      if (end <= before) refuse(name_, "the index does not grow");
      before = end;
    }
    crc = crc_of(std::span(std::as_const(piece)), crc);
    offset += static_cast<std::int64_t>(piece.size() * sizeof(std::uint64_t));
    ends_.insert(ends_.end(), piece.begin(), piece.end());
  }
  if (crc != footer.index_crc) refuse(name_, "damaged index");
  if (before != footer.tokens) refuse(name_, "the index does not end with the tokens");
}

void PdsFile::read_checksums(const pds::Footer& footer) {
  checksums_.resize((footer.tokens + pds::kBlock - 1) / pds::kBlock);
  read_into(file_, static_cast<std::int64_t>(footer.checksums_offset), std::span(checksums_));
  if (footer.checksums_crc != crc_of(std::span(std::as_const(checksums_)))) {
    refuse(name_, "damaged checksums");
  }
}

void PdsFile::check_block(std::int64_t block) const {
  const auto at = static_cast<std::size_t>(block);
  if (checked_[at].load(std::memory_order_relaxed)) return;
  const std::int64_t begin = block * pds::kBlock;
  const std::int64_t size = std::min(pds::kBlock, num_tokens_ - begin);
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(size));
  read_into(file_, kHeader + begin, std::span(bytes));
  if (crc_of(std::span(std::as_const(bytes))) != checksums_[at]) {
    fail(ExitCode::kCorrupt,
         "{}: damaged tokens between bytes {} and {}; make it again with `performer data build`",
         name_, kHeader + begin, kHeader + begin + size);
  }
  check_range(name_, bytes);
  checked_[at].store(true, std::memory_order_relaxed);
}

void PdsFile::verify() const {
  for (std::int64_t block = 0; block < std::ssize(checksums_); ++block) check_block(block);
}

std::int64_t PdsFile::begin_of(std::int64_t index) const {
  return index == 0 ? 0 : static_cast<std::int64_t>(ends_[static_cast<std::size_t>(index - 1)]);
}

std::int64_t PdsFile::length(std::int64_t index) const {
  return static_cast<std::int64_t>(ends_[static_cast<std::size_t>(index)]) - begin_of(index);
}

void PdsFile::read(std::int64_t index, std::int64_t begin, std::span<std::uint8_t> out) const {
  if (out.empty()) return;
  const std::int64_t from = begin_of(index) + begin;
  const std::int64_t last = (from + std::ssize(out) - 1) / pds::kBlock;
  for (std::int64_t block = from / pds::kBlock; block <= last; ++block) check_block(block);
  read_into(file_, kHeader + from, out);
  check_range(name_, out);
}

bool is_pds(const std::string& path) {
  if (is_pipe(path)) return false;  // what is read to see what it is would be lost
  std::array<char, pds::kMagic.size()> start{};
  std::ifstream in(path, std::ios::binary);
  return in.read(start.data(), start.size()) && start == pds::kMagic;
}

}  // namespace performer::data
