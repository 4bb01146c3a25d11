#include "performer/data/pixels.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <span>
#include <utility>

#include "performer/core/error.h"
#include "performer/data/byte_source.h"

namespace performer::data {
namespace {

constexpr std::int64_t kMaxBytes = std::int64_t{1} << 32;
constexpr std::int64_t kLevels = 256;
constexpr std::uint8_t kUnsignedByte = 0x08;

std::int64_t big_endian(std::span<const std::uint8_t> bytes) {
  std::int64_t value = 0;
  for (const std::uint8_t byte : bytes) value = value << 8 | byte;
  return value;
}

void check_shape(const std::string& path, const std::vector<std::int64_t>& shape, Images& images) {
  if (images.shape.empty()) images.shape = shape;
  if (shape == images.shape) return;
  fail(ExitCode::kBadInput, "{}: {} values (rows, columns, channels), those before have {}", path,
       fmt::join(shape, " x "), fmt::join(images.shape, " x "));
}

void add(const std::string& path, std::span<const std::uint8_t> values, Images& images) {
  if (images.sequences->total() > kMaxBytes - std::ssize(values)) {
    fail(ExitCode::kBadInput, "{}: more than {} values together, too many to hold in memory", path,
         kMaxBytes);
  }
  images.sequences->add(values);
}

// An idx file read from start to end: nothing is kept that the header does not announce.
class IdxReader {
 public:
  explicit IdxReader(const std::string& path) : path_(path), source_(path, Content::kBinary) {}

  void read(Images& images) {
    const auto [count, rows, columns, channels] = read_sizes();
    check_shape(path_, {rows, columns, channels}, images);
    const std::int64_t size = rows * columns * channels;
    std::vector<std::uint8_t> values;
    for (std::int64_t i = 0; i < count; ++i) {
      values.clear();
      if (take(size, values) < size) {
        fail(ExitCode::kBadInput, "{}: {} values, its header says {}", path_,
             i * size + std::ssize(values), count * size);
      }
      add(path_, values, images);
    }
    values.clear();
    if (take(1, values) > 0) {
      fail(ExitCode::kBadInput, "{}: more values than the {} its header says", path_, count * size);
    }
  }

 private:
  // Count, rows, columns and channels; kBadInput where this is no idx header.
  std::array<std::int64_t, 4> read_sizes() {
    std::vector<std::uint8_t> head, bytes;
    if (take(4, head) < 4 || head[0] != 0 || head[1] != 0) {
      fail(ExitCode::kBadInput, "{}: is no idx file (it must begin with two zeros)", path_);
    }
    if (head[2] != kUnsignedByte) {
      fail(ExitCode::kBadInput, "{}: idx type 0x{:02x}, only unsigned bytes (0x08) are images",
           path_, head[2]);
    }
    const std::int64_t dimensions = head[3];
    if (dimensions < 3 || dimensions > 4 || take(4 * dimensions, bytes) < 4 * dimensions) {
      fail(ExitCode::kBadInput, "{}: {} dimensions; images have count, rows, columns[, channels]",
           path_, dimensions);
    }
    std::array<std::int64_t, 4> sizes = {1, 1, 1, 1};
    std::int64_t total = 1;
    for (std::size_t d = 0; d < static_cast<std::size_t>(dimensions); ++d) {
      sizes[d] = big_endian(std::span(bytes).subspan(4 * d, 4));
      if (sizes[d] < 1 || sizes[d] > kMaxBytes / total) {
        fail(ExitCode::kBadInput, "{}: dimension {} is {}", path_, d, sizes[d]);
      }
      total *= sizes[d];
    }
    return sizes;
  }

  // Appends up to `count` bytes; fewer at the end of the file. Returns how many there are now.
  std::int64_t take(std::int64_t count, std::vector<std::uint8_t>& out) {
    while (count > 0) {
      if (rest_.empty()) rest_ = source_.next();
      if (rest_.empty()) break;
      const auto part = rest_.first(std::min(rest_.size(), static_cast<std::size_t>(count)));
      out.insert(out.end(), part.begin(), part.end());
      rest_ = rest_.subspan(part.size());
      count -= std::ssize(part);
    }
    return std::ssize(out);
  }

  const std::string& path_;
  ByteSource source_;
  std::span<const char> rest_;
};

void read_folder(const std::string& path, Images& images) {
  std::vector<std::string> files;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(path, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string suffix = entry->path().extension().string();
    const bool image = suffix == ".png" || suffix == ".ppm" || suffix == ".pgm";
    std::error_code unknown;
    if (image && entry->is_regular_file(unknown)) files.push_back(entry->path().string());
  }
  if (error) {
    fail(ExitCode::kBadInput, "{}: the folder cannot be read: {}", path, error.message());
  }
  if (files.empty()) fail(ExitCode::kBadInput, "{}: holds no .png, .ppm or .pgm file", path);
  std::ranges::sort(files);
  for (const auto& file : files) {
    const Image image = read_image(file);
    check_shape(file, image.shape, images);
    add(file, image.values, images);
  }
}

}  // namespace

Images read_images(const std::vector<std::string>& paths) {
  Images images{std::make_unique<MemorySequences>(), {}};
  for (const auto& path : paths) {
    std::error_code unknown;
    if (std::filesystem::is_directory(path, unknown)) {
      read_folder(path, images);
    } else {
      IdxReader(path).read(images);
    }
  }
  return images;
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
