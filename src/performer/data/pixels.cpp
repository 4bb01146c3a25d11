#include "performer/data/pixels.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>
#include <utility>

#include "performer/core/error.h"
#include "performer/data/byte_source.h"

namespace performer::data {
namespace {

constexpr std::int64_t kMaxBytes = std::int64_t{1} << 32;
constexpr std::int64_t kLevels = 256;
constexpr unsigned char kUnsignedByte = 0x08;

std::int64_t big_endian(std::string_view bytes) {
  std::int64_t value = 0;
  for (const char byte : bytes) value = value << 8 | static_cast<unsigned char>(byte);
  return value;
}

// Count, rows, columns and channels of an idx header; kBadInput where it is none.
std::array<std::int64_t, 4> idx_sizes(const std::string& path, std::string_view bytes) {
  const bool begins = bytes.size() >= 4 && bytes[0] == 0 && bytes[1] == 0;
  if (!begins) fail(ExitCode::kBadInput, "{}: is no idx file (it must begin with two zeros)", path);
  if (static_cast<unsigned char>(bytes[2]) != kUnsignedByte) {
    fail(ExitCode::kBadInput, "{}: idx type 0x{:02x}, only unsigned bytes (0x08) are images", path,
         static_cast<unsigned char>(bytes[2]));
  }
  const auto dimensions = static_cast<std::size_t>(static_cast<unsigned char>(bytes[3]));
  if (dimensions < 3 || dimensions > 4 || bytes.size() < 4 + 4 * dimensions) {
    fail(ExitCode::kBadInput, "{}: {} dimensions; images have count, rows, columns[, channels]",
         path, dimensions);
  }
  std::array<std::int64_t, 4> sizes = {1, 1, 1, 1};
  std::int64_t total = 1;
  for (std::size_t d = 0; d < dimensions; ++d) {
    sizes[d] = big_endian(bytes.substr(4 + 4 * d, 4));
    if (sizes[d] < 1 || sizes[d] > kMaxBytes / total) {
      fail(ExitCode::kBadInput, "{}: dimension {} is {}", path, d, sizes[d]);
    }
    total *= sizes[d];
  }
  const auto there = static_cast<std::int64_t>(bytes.size() - 4 - 4 * dimensions);
  if (there != total) {
    fail(ExitCode::kBadInput, "{}: {} values, its header says {}", path, there, total);
  }
  return sizes;
}

Images read_idx(const std::string& path) {
  const std::string bytes = read_all(path, kMaxBytes);
  const auto [count, rows, columns, channels] = idx_sizes(path, bytes);
  Images images{std::make_unique<MemorySequences>(), {rows, columns, channels}};
  const auto size = static_cast<std::size_t>(rows * columns * channels);
  const auto* values = reinterpret_cast<const std::uint8_t*>(bytes.data() + bytes.size()) -
                       static_cast<std::ptrdiff_t>(size) * count;
  for (std::int64_t i = 0; i < count; ++i, values += size) images.sequences->add({values, size});
  return images;
}

Images read_folder(const std::string& path) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    const std::string suffix = entry.path().extension().string();
    if (suffix == ".png" || suffix == ".ppm" || suffix == ".pgm") {
      files.push_back(entry.path().string());
    }
  }
  if (files.empty()) fail(ExitCode::kBadInput, "{}: holds no .png, .ppm or .pgm file", path);
  std::ranges::sort(files);
  Images images{std::make_unique<MemorySequences>(), {}};
  for (const auto& file : files) {
    const Image image = read_image(file);
    if (images.shape.empty()) images.shape = image.shape;
    if (image.shape != images.shape) {
      fail(ExitCode::kBadInput, "{}: {} values (rows, columns, channels), {} has {}", file,
           fmt::join(image.shape, " x "), files.front(), fmt::join(images.shape, " x "));
    }
    images.sequences->add(image.values);
  }
  return images;
}

}  // namespace

Images read_images(const std::string& path) {
  return std::filesystem::is_directory(path) ? read_folder(path) : read_idx(path);
}

TokenSpace pixel_space(const std::vector<std::int64_t>& shape) {
  TokenSpace space;
  space.kind = "pixels";
  space.regular = kLevels;
  space.bos = space.start = kLevels;
  space.mask = kLevels + 1;
  space.pad = kLevels + 2;
  space.vocabulary = kLevels + 3;
  space.shape = shape;
  return space;
}

}  // namespace performer::data
