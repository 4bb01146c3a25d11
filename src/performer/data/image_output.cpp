#include "performer/data/image_output.h"

#include <fmt/ranges.h>
#include <png.h>

#include <algorithm>
#include <cmath>

#include "performer/core/error.h"

namespace performer::data {
namespace {

constexpr std::int64_t kMaxSide = std::int64_t{1} << 14;
constexpr std::int64_t kMaxSheet = std::int64_t{1} << 28;  // values
constexpr std::int64_t kVisible = 100;                     // points
constexpr std::int64_t kLine = 2;                          // points between images
constexpr std::uint8_t kLineValue = 232;

// A picture of (rows, columns, channels) to be painted on.
struct Canvas {
  Image image;

  std::uint8_t* at(std::int64_t row, std::int64_t column) {
    const auto place = (row * image.shape[1] + column) * image.shape[2];
    return image.values.data() + place;
  }

  void paint(const Image& tile, std::int64_t top, std::int64_t left, std::int64_t scale) {
    const auto channels = tile.shape[2];
    for (std::int64_t row = 0; row < tile.shape[0] * scale; ++row) {
      const auto* line = tile.values.data() + (row / scale) * tile.shape[1] * channels;
      for (std::int64_t column = 0; column < tile.shape[1] * scale; ++column) {
        std::copy_n(line + (column / scale) * channels, channels, at(top + row, left + column));
      }
    }
  }
};

// Of a sheet as near to a square as the number of its images allows.
std::int64_t columns_of(std::int64_t count) {
  return static_cast<std::int64_t>(std::ceil(std::sqrt(static_cast<double>(count))));
}

}  // namespace

std::int64_t num_values(std::span<const std::int64_t> shape) {
  const auto side = [](std::int64_t points) { return points >= 1 && points <= kMaxSide; };
  const bool drawable =
      shape.size() == 3 && side(shape[0]) && side(shape[1]) && (shape[2] == 1 || shape[2] == 3);
  if (!drawable) {
    fail(ExitCode::kUsage,
         "images of {} values (rows, columns, channels) have no PNG form: sides of 1 to {} points "
         "and 1 or 3 channels are needed",
         fmt::join(shape, " x "), kMaxSide);
  }
  return shape[0] * shape[1] * shape[2];
}

std::string png_bytes(const Image& image) {
  const auto values = static_cast<std::size_t>(num_values(image.shape));
  if (image.values.size() != values) {
    fail(ExitCode::kFailure, "image: {} values for a shape of {}", image.values.size(), values);
  }
  png_image png{};
  png.version = PNG_IMAGE_VERSION;
  png.height = static_cast<png_uint_32>(image.shape[0]);
  png.width = static_cast<png_uint_32>(image.shape[1]);
  png.format = image.shape[2] == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY;
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(png);
  std::string bytes(size, '\0');
  if (png_image_write_to_memory(&png, bytes.data(), &size, 0, image.values.data(), 0, nullptr) ==
      0) {
    fail(ExitCode::kFailure, "image: PNG cannot be written: {}", png.message);
  }
  bytes.resize(size);
  return bytes;
}

std::int64_t visible_scale(std::span<const std::int64_t> shape) {
  const auto longer = std::max(shape[0], shape[1]);
  return std::max<std::int64_t>((kVisible + longer - 1) / longer, 1);
}

std::vector<std::int64_t> sheet_shape(std::span<const std::int64_t> shape, std::int64_t count,
                                      std::int64_t scale) {
  num_values(shape);
  const auto columns = columns_of(count);
  const auto rows = (count + columns - 1) / columns;
  const auto height = rows * (shape[0] * scale + kLine) + kLine;
  const auto width = columns * (shape[1] * scale + kLine) + kLine;
  if (height > kMaxSide || width > kMaxSide || height * width * shape[2] > kMaxSheet) {
    fail(ExitCode::kUsage, "a sheet of {} images of {} points is too large; take fewer", count,
         fmt::join(shape, " x "));
  }
  return {height, width, shape[2]};
}

Image contact_sheet(std::span<const Image> images, std::int64_t scale) {
  const auto count = std::ssize(images);
  const auto& shape = images.front().shape;
  const auto sheet = sheet_shape(shape, count, scale);
  const auto size = static_cast<std::size_t>(num_values(sheet));
  const auto columns = columns_of(count);
  const auto step_down = shape[0] * scale + kLine, step_right = shape[1] * scale + kLine;
  Canvas canvas{{std::vector<std::uint8_t>(size, kLineValue), sheet}};
  for (std::int64_t i = 0; i < count; ++i) {
    const Image& image = images[static_cast<std::size_t>(i)];
    if (image.shape != shape) fail(ExitCode::kFailure, "a sheet needs images of one shape");
    canvas.paint(image, kLine + i / columns * step_down, kLine + i % columns * step_right, scale);
  }
  return std::move(canvas.image);
}

}  // namespace performer::data
