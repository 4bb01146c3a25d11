#include <png.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>

#include "performer/core/error.h"
#include "performer/data/byte_source.h"
#include "performer/data/pixels.h"

namespace performer::data {
namespace {

constexpr std::int64_t kMaxFile = std::int64_t{1} << 28;
constexpr std::int64_t kMaxSide = std::int64_t{1} << 14;
constexpr std::int64_t kMaxValues = std::int64_t{1} << 26;  // each is a token of one row
constexpr std::size_t kPngMark = 8, kChunkFrame = 12;       // length, type and checksum of a chunk

void check_size(const std::string& path, const std::vector<std::int64_t>& shape) {
  for (const std::int64_t side : {shape[0], shape[1]}) {
    if (side >= 1 && side <= kMaxSide) continue;
    fail(ExitCode::kBadInput, "{}: a side of {} pixels; allowed are 1 to {}", path, side, kMaxSide);
  }
  if (shape[0] * shape[1] * shape[2] > kMaxValues) {
    fail(ExitCode::kBadInput, "{}: {} x {} pixels with {} channels; at most {} values are read",
         path, shape[0], shape[1], shape[2], kMaxValues);
  }
}

// The file without its texts: nobody reads them here, and a thousand that unpack to megabytes each
// fit into a small file.
std::string without_texts(const std::string& path, std::string_view bytes) {
  std::string kept(bytes.substr(0, kPngMark));
  for (std::size_t at = kPngMark; at < bytes.size();) {
    std::size_t size = kChunkFrame;
    for (std::size_t i = 0; i < 4 && at + i < bytes.size(); ++i) {
      size += std::size_t{static_cast<unsigned char>(bytes[at + i])} << (24 - 8 * i);
    }
    if (size > bytes.size() - at) break;
    const auto type = bytes.substr(at + 4, 4);
    if (type != "tEXt" && type != "zTXt" && type != "iTXt") kept += bytes.substr(at, size);
    at += size;
    if (type == "IEND") return kept;
  }
  fail(ExitCode::kBadInput, "{}: damaged PNG: cut short after {} bytes", path, bytes.size());
}

Image read_png(const std::string& path, std::string_view file) {
  const std::string bytes = without_texts(path, file);
  png_image png{};
  png.version = PNG_IMAGE_VERSION;
  if (png_image_begin_read_from_memory(&png, bytes.data(), bytes.size()) == 0) {
    fail(ExitCode::kBadInput, "{}: damaged PNG: {}", path, png.message);
  }
  const std::unique_ptr<png_image, decltype(&png_image_free)> release(&png, &png_image_free);
  const bool color = (png.format & PNG_FORMAT_FLAG_COLOR) != 0;
  png.format = color ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY;
  Image image{{}, {png.height, png.width, color ? 3 : 1}};
  check_size(path, image.shape);
  image.values.resize(PNG_IMAGE_SIZE(png));
  const png_color black{};  // what transparent pixels lie on
  if (png_image_finish_read(&png, &black, image.values.data(), 0, nullptr) == 0) {
    fail(ExitCode::kBadInput, "{}: damaged PNG: {}", path, png.message);
  }
  return image;
}

// The numbers of a binary PGM or PPM header, with comments between them.
class PnmHeader {
 public:
  PnmHeader(const std::string& path, std::string_view bytes) : path_(path), bytes_(bytes) {}

  std::int64_t number() {
    while (at_ < bytes_.size() && (std::isspace(byte()) != 0 || bytes_[at_] == '#')) {
      at_ = bytes_[at_] == '#' ? std::min(bytes_.find('\n', at_), bytes_.size()) : at_ + 1;
    }
    std::int64_t value = 0;
    const std::size_t begin = at_;
    for (; at_ < bytes_.size() && std::isdigit(byte()) != 0 && at_ - begin <= kMaxDigits; ++at_) {
      value = 10 * value + (bytes_[at_] - '0');
    }
    if (at_ == begin || at_ - begin > kMaxDigits)
      fail(ExitCode::kBadInput, "{}: damaged header at byte {}", path_, at_);
    return value;
  }

  std::string_view rest() const { return bytes_.substr(std::min(at_ + 1, bytes_.size())); }

 private:
  static constexpr std::size_t kMaxDigits = 9;

  int byte() const { return static_cast<unsigned char>(bytes_[at_]); }

  const std::string& path_;
  std::string_view bytes_;
  std::size_t at_ = 2;
};

Image read_pnm(const std::string& path, const std::string& bytes) {
  PnmHeader header(path, bytes);
  const std::int64_t columns = header.number(), rows = header.number(), most = header.number();
  if (most != 255) {
    fail(ExitCode::kBadInput, "{}: values up to {}; only 255 is read", path, most);
  }
  const std::int64_t channels = bytes[1] == '6' ? 3 : 1;
  check_size(path, {rows, columns, channels});
  const auto size = static_cast<std::size_t>(rows * columns * channels);
  const auto rest = header.rest();
  if (rest.size() != size) {
    fail(ExitCode::kBadInput, "{}: {} values, its header says {}", path, rest.size(), size);
  }
  Image image{std::vector<std::uint8_t>(size), {rows, columns, channels}};
  std::memcpy(image.values.data(), rest.data(), size);
  return image;
}

}  // namespace

Image read_image(const std::string& path) {
  const std::string bytes = read_all(path, kMaxFile, Content::kBinary);
  if (bytes.starts_with("\x89PNG")) return read_png(path, bytes);
  if (bytes.starts_with("P5") || bytes.starts_with("P6")) return read_pnm(path, bytes);
  fail(ExitCode::kBadInput, "{}: neither PNG nor binary PPM or PGM (P6, P5)", path);
}

}  // namespace performer::data
