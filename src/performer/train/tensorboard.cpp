#include "performer/train/tensorboard.h"

#include <bit>
#include <string>
#include <system_error>
#include <utility>

#include "performer/core/crc32c.h"
#include "performer/core/error.h"

namespace performer::train {
namespace {

// Field numbers of tensorflow/core/util/event.proto and framework/summary.proto.
constexpr std::uint32_t kEventWallTime = 1;
constexpr std::uint32_t kEventStep = 2;
constexpr std::uint32_t kEventFileVersion = 3;
constexpr std::uint32_t kEventSummary = 5;
constexpr std::uint32_t kEventSessionLog = 7;
constexpr std::uint32_t kSummaryValue = 1;
constexpr std::uint32_t kValueTag = 1;
constexpr std::uint32_t kValueSimple = 2;
constexpr std::uint32_t kSessionStatus = 1;
constexpr std::uint64_t kSessionStart = 1;

enum WireType : std::uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

template <class Int>
std::string little_endian(Int value) {
  std::string bytes(sizeof(value), '\0');
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<char>(value >> (8 * i) & 0xff);
  }
  return bytes;
}

std::string varint(std::uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) {
    bytes.push_back(static_cast<char>(value | 0x80));
  }
  bytes.push_back(static_cast<char>(value));
  return bytes;
}

std::string key(std::uint32_t field, WireType type) {
  return varint(std::uint64_t{field} << 3 | type);
}

std::string bytes_field(std::uint32_t field, std::string_view bytes) {
  return key(field, kBytes) + varint(bytes.size()) + std::string(bytes);
}

std::string event(double wall_time, std::int64_t step, const std::string& what) {
  return key(kEventWallTime, kFixed64) + little_endian(std::bit_cast<std::uint64_t>(wall_time)) +
         key(kEventStep, kVarint) + varint(static_cast<std::uint64_t>(step)) + what;
}

// TFRecord stores checksums "masked", since data may itself contain checksums.
std::string masked_crc(std::string_view bytes) {
  const std::uint32_t crc = crc32c(bytes);
  return little_endian((crc >> 15 | crc << 17) + 0xa282ead8U);
}

std::string record(const std::string& data) {
  const std::string length = little_endian(std::uint64_t{data.size()});
  return length + masked_crc(length) + data + masked_crc(data);
}

// Two starts within one second get files of their own.
std::filesystem::path new_file(const std::filesystem::path& folder, double wall_time) {
  const auto seconds = static_cast<std::int64_t>(wall_time);
  for (int number = 0;; ++number) {
    auto path = folder / fmt::format("events.out.tfevents.{:010d}.performer.{}", seconds, number);
    if (std::error_code ignored; !std::filesystem::exists(path, ignored)) {
      return path;
    }
  }
}

}  // namespace

EventWriter::EventWriter(const std::filesystem::path& folder, const Start& start,
                         AppendFile::Warn warn)
    : file_(new_file(folder, start.wall_time), std::move(warn)) {
  std::string records =
      record(event(start.wall_time, 0, bytes_field(kEventFileVersion, "brain.Event:2")));
  if (start.first_step > 0) {
    const std::string status = key(kSessionStatus, kVarint) + varint(kSessionStart);
    records +=
        record(event(start.wall_time, start.first_step, bytes_field(kEventSessionLog, status)));
  }
  file_.append(records);
}

void EventWriter::scalar(std::string_view tag, std::int64_t step, double value, double wall_time) {
  const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(value));
  const std::string entry =
      bytes_field(kValueTag, tag) + key(kValueSimple, kFixed32) + little_endian(bits);
  const std::string summary = bytes_field(kSummaryValue, entry);
  file_.append(record(event(wall_time, step, bytes_field(kEventSummary, summary))));
}

}  // namespace performer::train
