#include "performer/data/pds_file.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <fstream>

#include "performer/core/error.h"
#include "performer/data/alphabet.h"
#include "performer/data/pds_format.h"

namespace performer::data {
namespace {

std::uint32_t crc_of(std::span<const std::byte> bytes) {
  return static_cast<std::uint32_t>(
      crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

template <class T>
T copy_from(std::span<const std::byte> bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof(T));
  return value;
}

template <class T>
std::span<const T> view(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
}

std::uint64_t aligned(std::uint64_t bytes) { return (bytes + 7) / 8 * 8; }

[[noreturn]] void refuse(const std::string& name, const char* what) {
  fail(ExitCode::kCorrupt, "{}: {}; make it again with `performer data build`", name, what);
}

}  // namespace

PdsFile::PdsFile(const std::filesystem::path& path) : name_(path.string()), file_(path) {
  check_layout();
  check_index();
  checked_ = std::vector<std::atomic<bool>>(checksums_.size());
  if (static_cast<std::int64_t>(tokens_.size()) <= kCheckedAtOnce) verify();
}

// Every number is compared with the size of the file before anything is computed from it.
void PdsFile::check_layout() {
  const auto all = file_.bytes();
  if (all.size() < sizeof(pds::Header) + sizeof(pds::Footer)) refuse(name_, "cut short");
  const auto header = copy_from<pds::Header>(all);
  if (header.magic != pds::kMagic) refuse(name_, "is no .pds file");
  if (header.crc != crc_of(all.first(offsetof(pds::Header, crc)))) refuse(name_, "damaged header");
  if (header.version != pds::kVersion || header.vocabulary != alphabet::kVocabulary) {
    fail(ExitCode::kBadInput,
         "{}: version {} with {} tokens, this program reads version {} with {}", name_,
         header.version, header.vocabulary, pds::kVersion, alphabet::kVocabulary);
  }
  const auto end = all.last(sizeof(pds::Footer));
  const auto footer = copy_from<pds::Footer>(end);
  if (footer.magic != pds::kEndMagic) refuse(name_, "cut short");
  if (footer.crc != crc_of(end.first(offsetof(pds::Footer, crc))) ||
      footer.header_crc != header.crc) {
    refuse(name_, "damaged footer");
  }
  const std::uint64_t room = all.size();
  if (footer.tokens > room || footer.sequences > room / sizeof(std::uint64_t) ||
      footer.sequences == 0 || footer.sequences > footer.tokens) {
    refuse(name_, "impossible counts");
  }
  const std::uint64_t blocks = (footer.tokens + pds::kBlock - 1) / pds::kBlock;
  const std::uint64_t index = aligned(sizeof(pds::Header) + footer.tokens);
  const std::uint64_t checksums = index + footer.sequences * sizeof(std::uint64_t);
  const std::uint64_t after = checksums + aligned(blocks * sizeof(std::uint32_t));
  if (footer.index_offset != index || footer.checksums_offset != checksums ||
      after + sizeof(pds::Footer) != room) {
    refuse(name_, "the parts do not fill the file");
  }
  tokens_ = view<std::uint8_t>(all.subspan(sizeof(pds::Header), footer.tokens));
  ends_ = view<std::uint64_t>(all.subspan(index, checksums - index));
  checksums_ = view<std::uint32_t>(all.subspan(checksums, blocks * sizeof(std::uint32_t)));
  const auto gap =
      all.subspan(sizeof(pds::Header) + footer.tokens, index - sizeof(pds::Header) - footer.tokens);
  const auto tail = all.subspan(checksums + blocks * sizeof(std::uint32_t),
                                after - checksums - blocks * sizeof(std::uint32_t));
  const auto zero = [](std::byte b) { return b == std::byte{0}; };
  if (footer.index_crc != crc_of(std::as_bytes(ends_)) || !std::ranges::all_of(gap, zero)) {
    refuse(name_, "damaged index");
  }
  if (footer.checksums_crc != crc_of(std::as_bytes(checksums_)) ||
      !std::ranges::all_of(tail, zero)) {
    refuse(name_, "damaged checksums");
  }
}

void PdsFile::check_index() const {
  std::uint64_t before = 0;
  for (const std::uint64_t end : ends_) {
    if (end <= before) refuse(name_, "the index does not grow");
    before = end;
  }
  if (before != tokens_.size()) refuse(name_, "the index does not end with the tokens");
}

void PdsFile::check_block(std::int64_t block) const {
  const auto at = static_cast<std::size_t>(block);
  if (checked_[at].load(std::memory_order_relaxed)) return;
  const std::size_t begin = at * static_cast<std::size_t>(pds::kBlock);
  const auto bytes =
      tokens_.subspan(begin, std::min<std::size_t>(pds::kBlock, tokens_.size() - begin));
  if (crc_of(std::as_bytes(bytes)) != checksums_[at]) {
    fail(ExitCode::kCorrupt,
         "{}: damaged tokens between bytes {} and {}; make it again with `performer data build`",
         name_, sizeof(pds::Header) + begin, sizeof(pds::Header) + begin + bytes.size());
  }
  // A checksum can be made for anything; a number outside the vocabulary must not reach a model.
  std::uint8_t low = 0xFF, high = 0;
  for (const std::uint8_t token : bytes) {
    low = std::min(low, token);
    high = std::max(high, token);
  }
  if (low < alphabet::kFirstLetter || high >= alphabet::kVocabulary) {
    refuse(name_, "tokens outside the alphabet");
  }
  checked_[at].store(true, std::memory_order_relaxed);
}

void PdsFile::verify() const {
  for (std::int64_t block = 0; block < static_cast<std::int64_t>(checksums_.size()); ++block) {
    check_block(block);
  }
}

std::uint64_t PdsFile::begin_of(std::int64_t index) const {
  return index == 0 ? 0 : ends_[static_cast<std::size_t>(index - 1)];
}

std::int64_t PdsFile::length(std::int64_t index) const {
  return static_cast<std::int64_t>(ends_[static_cast<std::size_t>(index)] - begin_of(index));
}

std::span<const std::uint8_t> PdsFile::tokens(std::int64_t index) const {
  const auto begin = static_cast<std::int64_t>(begin_of(index));
  const std::int64_t count = length(index);
  const std::int64_t last = (begin + count - 1) / pds::kBlock;
  for (std::int64_t block = begin / pds::kBlock; block <= last; ++block) check_block(block);
  return tokens_.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(count));
}

bool is_pds(const std::string& path) {
  std::array<char, pds::kMagic.size()> start{};
  std::ifstream in(path, std::ios::binary);
  return path != "-" && in.read(start.data(), start.size()) && start == pds::kMagic;
}

}  // namespace performer::data
