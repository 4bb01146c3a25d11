#include "performer/core/zip_writer.h"

#include <zlib.h>

#include "performer/core/error.h"

namespace performer {
namespace {

constexpr std::uint64_t kVersion = 45;          // zip64
constexpr std::uint64_t kUtf8Name = 1U << 11;   // flag
constexpr std::uint64_t kFirstDay = 33;         // 1 January 1980, the first that there is
constexpr std::uint64_t kInZip64 = 0xffffffff;  // where a field of zip64 has the value
constexpr std::uint64_t kManyMembers = 0xffff;

// Little-endian fields, one after the other.
class Fields {
 public:
  Fields& add(std::uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) text_ += static_cast<char>(value >> (8 * i) & 0xff);
    return *this;
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

}  // namespace

void ZipWriter::add(const std::string& name, const std::function<void(const TakePiece&)>& pieces) {
  Member member{name, 0, 0, out_.bytes()};
  uLong crc = crc32_z(0, nullptr, 0);
  pieces([&](std::span<const std::byte> piece) {
    crc = crc32_z(crc, reinterpret_cast<const Bytef*>(piece.data()), piece.size());
    member.size += static_cast<std::int64_t>(piece.size());
  });
  member.crc = static_cast<std::uint32_t>(crc);
  const auto size = static_cast<std::uint64_t>(member.size);
  Fields local;
  local.add(0x04034b50, 4).add(kVersion, 2).add(kUtf8Name, 2).add(0, 2).add(0, 2).add(kFirstDay, 2);
  local.add(member.crc, 4).add(kInZip64, 4).add(kInZip64, 4).add(name.size(), 2).add(20, 2);
  Fields sizes;
  sizes.add(1, 2).add(16, 2).add(size, 8).add(size, 8);
  out_.write(local.text());
  out_.write(name);
  out_.write(sizes.text());
  const std::int64_t begin = out_.bytes();
  pieces([&](std::span<const std::byte> piece) { out_.write(piece); });
  if (out_.bytes() - begin != member.size) {
    fail(ExitCode::kFailure, "{}: {} has {} bytes when it is written, and had {} before",
         out_.path().string(), name, out_.bytes() - begin, member.size);
  }
  members_.push_back(std::move(member));
}

void ZipWriter::finish() {
  const auto begin = static_cast<std::uint64_t>(out_.bytes());
  for (const Member& m : members_) {
    const auto size = static_cast<std::uint64_t>(m.size);
    Fields entry;
    entry.add(0x02014b50, 4).add(kVersion, 2).add(kVersion, 2).add(kUtf8Name, 2).add(0, 2);
    entry.add(0, 2).add(kFirstDay, 2).add(m.crc, 4).add(kInZip64, 4).add(kInZip64, 4);
    entry.add(m.name.size(), 2).add(28, 2).add(0, 2).add(0, 2).add(0, 2).add(0, 4).add(kInZip64, 4);
    Fields places;
    places.add(1, 2).add(24, 2).add(size, 8).add(size, 8);
    places.add(static_cast<std::uint64_t>(m.begin), 8);
    out_.write(entry.text());
    out_.write(m.name);
    out_.write(places.text());
  }
  const auto end = static_cast<std::uint64_t>(out_.bytes());
  const auto count = static_cast<std::uint64_t>(members_.size());
  Fields last;
  last.add(0x06064b50, 4).add(44, 8).add(kVersion, 2).add(kVersion, 2).add(0, 4).add(0, 4);
  last.add(count, 8).add(count, 8).add(end - begin, 8).add(begin, 8);
  last.add(0x07064b50, 4).add(0, 4).add(end, 8).add(1, 4);
  last.add(0x06054b50, 4).add(0, 2).add(0, 2).add(kManyMembers, 2).add(kManyMembers, 2);
  last.add(kInZip64, 4).add(kInZip64, 4).add(0, 2);
  out_.write(last.text());
}

}  // namespace performer
