#include "performer/data/pds_writer.h"

#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <utility>

#include "performer/core/temporary_file.h"
#include "performer/data/alphabet.h"
#include "performer/data/pds_format.h"

namespace performer::data {
namespace {

constexpr std::size_t kIndexBuffer = std::size_t{1} << 16;

std::uint32_t crc_of(std::span<const std::byte> bytes, std::uint32_t before = 0) {
  return static_cast<std::uint32_t>(
      crc32_z(before, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

template <class T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

pds::Header make_header() {
  pds::Header header;
  header.vocabulary = static_cast<std::uint32_t>(alphabet::kVocabulary);
  header.crc = crc_of(bytes_of(header).first(offsetof(pds::Header, crc)));
  return header;
}

void pad(FileWriter& out) {
  constexpr std::array<std::byte, pds::kAlign> kZeros{};
  const std::int64_t over = out.bytes() % pds::kAlign;
  if (over > 0) out.write(std::span(kZeros).first(static_cast<std::size_t>(pds::kAlign - over)));
}

}  // namespace

PdsWriter::PdsWriter(const std::filesystem::path& path)
    : path_(path), file_(path), spill_(open_unnamed(path)) {
  block_.reserve(pds::kBlock);
  ends_.reserve(kIndexBuffer);
  file_.writer().write(bytes_of(make_header()));
}

void PdsWriter::add(std::span<const std::uint8_t> tokens) {
  tokens_ += static_cast<std::int64_t>(tokens.size());
  ++sequences_;
  while (!tokens.empty()) {
    const std::size_t count = std::min<std::size_t>(tokens.size(), pds::kBlock - block_.size());
    block_.insert(block_.end(), tokens.begin(),
                  tokens.begin() + static_cast<std::ptrdiff_t>(count));
    tokens = tokens.subspan(count);
    if (block_.size() == pds::kBlock) flush_block();
  }
  ends_.push_back(static_cast<std::uint64_t>(tokens_));
  if (ends_.size() == kIndexBuffer) flush_index();
}

void PdsWriter::flush_block() {
  if (block_.empty()) return;
  const auto bytes = std::as_bytes(std::span(block_));
  checksums_.push_back(crc_of(bytes));
  file_.writer().write(bytes);
  block_.clear();
}

void PdsWriter::flush_index() {
  auto bytes = std::as_bytes(std::span(std::as_const(ends_)));
  index_crc_ = crc_of(bytes, index_crc_);
  while (!bytes.empty()) {
    const ssize_t put = ::write(spill_.get(), bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) fail_write(path_, errno);
    bytes = bytes.subspan(static_cast<std::size_t>(put));
  }
  ends_.clear();
}

void PdsWriter::copy_index() {
  std::vector<std::byte> buffer(kIndexBuffer * sizeof(std::uint64_t));
  if (::lseek(spill_.get(), 0, SEEK_SET) < 0) fail_write(path_, errno);
  for (;;) {
    const ssize_t got = ::read(spill_.get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_write(path_, errno);
    if (got == 0) return;
    file_.writer().write(std::span(buffer).first(static_cast<std::size_t>(got)));
  }
}

std::string PdsWriter::finish() {
  flush_block();
  flush_index();
  FileWriter& out = file_.writer();
  pad(out);
  pds::Footer footer;
  footer.sequences = static_cast<std::uint64_t>(sequences_);
  footer.tokens = static_cast<std::uint64_t>(tokens_);
  footer.index_offset = static_cast<std::uint64_t>(out.bytes());
  copy_index();
  footer.checksums_offset = static_cast<std::uint64_t>(out.bytes());
  const auto checksums = std::as_bytes(std::span(std::as_const(checksums_)));
  out.write(checksums);
  pad(out);
  footer.header_crc = make_header().crc;
  footer.index_crc = index_crc_;
  footer.checksums_crc = crc_of(checksums);
  footer.crc = crc_of(bytes_of(footer).first(offsetof(pds::Footer, crc)));
  out.write(bytes_of(footer));
  return file_.commit();
}

}  // namespace performer::data
