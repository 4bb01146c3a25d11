#include "performer/train/tensorboard.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "performer/core/crc32c.h"
#include "performer/core/file.h"
#include "tests/support/small_disk.h"
#include "tests/support/temporary_folder.h"

namespace performer::train {
namespace {

using ::performer::testing::SmallDisk;
using ::performer::testing::TemporaryFolder;

std::uint64_t little_endian(std::string_view bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    value |= std::uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
  }
  return value;
}

// A protocol buffer's fields, number -> raw bytes (varints as 8 bytes), by the format's definition.
using Fields = std::map<std::uint64_t, std::string>;

std::uint64_t take_varint(std::string_view& bytes) {
  std::uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    const auto byte = static_cast<unsigned char>(bytes.at(0));
    bytes.remove_prefix(1);
    value |= std::uint64_t{byte & 0x7fU} << shift;
    if (byte < 0x80) {
      return value;
    }
  }
}

Fields fields_of(std::string_view bytes) {
  Fields fields;
  while (!bytes.empty()) {
    const std::uint64_t key = take_varint(bytes);
    std::string value;
    if (key % 8 == 0) {
      const std::uint64_t number = take_varint(bytes);
      value.assign(reinterpret_cast<const char*>(&number), sizeof(number));
    } else {
      const std::uint64_t size = key % 8 == 1 ? 8 : key % 8 == 5 ? 4 : take_varint(bytes);
      value = bytes.substr(0, size);
      bytes.remove_prefix(size);
    }
    EXPECT_TRUE(fields.emplace(key / 8, value).second);
  }
  return fields;
}

bool masked_crc_holds(std::string_view bytes, std::string_view stored) {
  const auto masked = static_cast<std::uint32_t>(little_endian(stored)) - 0xa282ead8U;
  return std::rotl(masked, 15) == crc32c(bytes);
}

std::vector<Fields> read_events(const std::filesystem::path& path) {
  const std::string file = read_file(path);
  std::vector<Fields> events;
  for (std::string_view rest = file; !rest.empty();) {
    const std::uint64_t length = little_endian(rest.substr(0, 8));
    EXPECT_TRUE(masked_crc_holds(rest.substr(0, 8), rest.substr(8, 4)));
    EXPECT_TRUE(masked_crc_holds(rest.substr(12, length), rest.substr(12 + length, 4)));
    events.push_back(fields_of(rest.substr(12, length)));
    rest.remove_prefix(16 + length);
  }
  return events;
}

double wall_time(const Fields& event) { return std::bit_cast<double>(little_endian(event.at(1))); }

void ignore(const std::string&) {}

TEST(Crc32cTest, KnownVectors) {
  EXPECT_EQ(crc32c("123456789"), 0xe3069283U);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aaU);  // RFC 3720, B.4
  EXPECT_EQ(crc32c(""), 0U);
}

TEST(TensorboardTest, StartsWithTheFileVersionInTheKnownBytes) {
  const TemporaryFolder folder;
  const EventWriter writer(folder.path(), {.wall_time = 0}, ignore);
  const std::string file = read_file(writer.path());
  EXPECT_EQ(file.substr(0, 8), std::string("\x1a\0\0\0\0\0\0\0", 8));
  EXPECT_EQ(file.substr(12, 26),
            std::string("\x09\0\0\0\0\0\0\0\0\x10\0\x1a\x0d", 13) + "brain.Event:2");
}

TEST(TensorboardTest, ScalarsComeBack) {
  const TemporaryFolder folder;
  EventWriter writer(folder.path(), {.wall_time = 1234.5}, ignore);
  writer.scalar("train/loss", 300, 2.25, 1300.75);
  writer.scalar("valid/loss", std::int64_t{1} << 40, -1e30, 1301);
  const auto events = read_events(writer.path());
  ASSERT_EQ(events.size(), 3);
  EXPECT_EQ(events[0].at(3), "brain.Event:2");
  EXPECT_EQ(wall_time(events[1]), 1300.75);
  EXPECT_EQ(little_endian(events[1].at(2)), 300);
  const Fields value = fields_of(fields_of(events[1].at(5)).at(1));
  EXPECT_EQ(value.at(1), "train/loss");
  EXPECT_EQ(std::bit_cast<float>(static_cast<std::uint32_t>(little_endian(value.at(2)))), 2.25F);
  EXPECT_EQ(little_endian(events[2].at(2)), std::uint64_t{1} << 40);
}

TEST(TensorboardTest, AResumedRunVoidsWhatItDoesAgain) {
  const TemporaryFolder folder;
  const EventWriter first(folder.path(), {.wall_time = 7}, ignore);
  const EventWriter second(folder.path(), {.wall_time = 7, .first_step = 101}, ignore);
  EXPECT_NE(first.path(), second.path());
  EXPECT_EQ(second.path().filename().string(), "events.out.tfevents.0000000007.performer.1");
  const auto events = read_events(second.path());
  ASSERT_EQ(events.size(), 2);
  EXPECT_EQ(little_endian(events[1].at(2)), 101);
  EXPECT_EQ(little_endian(fields_of(events[1].at(7)).at(1)), 1);
}

TEST(TensorboardTest, AFullDiskLosesWholeRecordsAndWarnsOnce) {
  const TemporaryFolder folder;
  int warnings = 0;
  EventWriter writer(folder.path(), {}, [&](const std::string&) { ++warnings; });
  {
    const SmallDisk disk(50);
    writer.scalar("a", 1, 1, 0);
    writer.scalar("a", 2, 1, 0);
  }
  writer.scalar("a", 3, 1, 0);
  EXPECT_EQ(warnings, 1);
  EXPECT_EQ(read_events(writer.path()).size(), 2);
}

}  // namespace
}  // namespace performer::train
