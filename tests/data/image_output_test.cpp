#include "performer/data/image_output.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "performer/core/error.h"
#include "performer/core/file.h"
#include "tests/support/failure.h"
#include "tests/support/temporary_folder.h"

namespace performer::data {
namespace {

using ::performer::testing::failure_of;
using ::performer::testing::TemporaryFolder;

Image ramp(std::int64_t rows, std::int64_t columns, std::int64_t channels) {
  Image image{{}, {rows, columns, channels}};
  for (std::int64_t i = 0; i < rows * columns * channels; ++i) {
    image.values.push_back(static_cast<std::uint8_t>(37 * i % 251));
  }
  return image;
}

TEST(ImageOutputTest, WhatIsWrittenIsReadBackValueByValue) {
  const TemporaryFolder folder;
  for (const std::int64_t channels : {1, 3}) {
    for (const auto& [rows, columns] : {std::pair{1, 1}, {5, 7}, {28, 28}}) {
      const Image image = ramp(rows, columns, channels);
      write_file_atomic(folder / "a.png", png_bytes(image));
      const Image back = read_image((folder / "a.png").string());
      EXPECT_EQ(back.shape, image.shape);
      EXPECT_EQ(back.values, image.values);
    }
  }
}

TEST(ImageOutputTest, ASheetHoldsEveryImageAtItsPlaceEnlarged) {
  const std::vector<Image> images = {ramp(2, 3, 3), ramp(2, 3, 3), ramp(2, 3, 3)};
  const Image sheet = contact_sheet(images, 4);
  // Two by two tiles of 8 x 12 points between lines of 2.
  ASSERT_EQ(sheet.shape, (std::vector<std::int64_t>{2 + 2 * 10, 2 + 2 * 14, 3}));
  const auto value = [&](std::int64_t row, std::int64_t column, std::int64_t channel) {
    return sheet.values[static_cast<std::size_t>((row * sheet.shape[1] + column) * 3 + channel)];
  };
  for (std::int64_t tile = 0; tile < 3; ++tile) {
    const auto top = 2 + tile / 2 * 10, left = 2 + tile % 2 * 14;
    for (std::int64_t i = 0; i < 8 * 12 * 3; ++i) {
      const auto row = i / 36, column = i / 3 % 12, channel = i % 3;
      const auto source = static_cast<std::size_t>((row / 4 * 3 + column / 4) * 3 + channel);
      ASSERT_EQ(value(top + row, left + column, channel), images[0].values[source]) << tile;
    }
  }
  EXPECT_EQ(value(0, 0, 0), value(21, 29, 2));  // the line, and the place without an image
}

TEST(ImageOutputTest, ShapesWithoutAPngFormAreRefused) {
  using Shape = std::vector<std::int64_t>;
  for (const Shape& shape : {Shape{},
                             {28, 28},
                             {28, 28, 2},
                             {0, 28, 1},
                             {28, 1 << 20, 1},
                             {28, -1, 3},
                             {std::int64_t{1} << 62, 1, 1}}) {
    EXPECT_EQ(failure_of([&] { num_values(shape); }).code, ExitCode::kUsage);
  }
  const std::vector<Image> two(2, ramp(28, 28, 1));
  EXPECT_EQ(failure_of([&] { contact_sheet(two, 1000); }).code, ExitCode::kUsage);
}

TEST(ImageOutputTest, SmallImagesAreEnlargedAndLargeOnesLeft) {
  EXPECT_EQ(visible_scale(std::vector<std::int64_t>{28, 28, 1}), 4);
  EXPECT_EQ(visible_scale(std::vector<std::int64_t>{64, 32, 3}), 2);
  EXPECT_EQ(visible_scale(std::vector<std::int64_t>{512, 512, 3}), 1);
}

}  // namespace
}  // namespace performer::data
