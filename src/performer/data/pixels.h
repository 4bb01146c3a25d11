#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "performer/data/sequence_source.h"
#include "performer/data/token_space.h"

namespace performer::data {

/// Images of one size as sequences of their values 0 ... 255 in raster order (row, column,
/// channel).
struct Images {
  std::unique_ptr<MemorySequences> sequences;
  std::vector<std::int64_t> shape;  // rows, columns, channels
};

/// Idx files [.gz] of unsigned bytes (count, rows, columns[, channels]) and folders of .png, .ppm
/// and .pgm files, taken by name. kBadInput names the file that is damaged or of another size.
Images read_images(const std::vector<std::string>& paths);

/// One image file of a folder: its values, and the shape.
struct Image {
  std::vector<std::uint8_t> values;
  std::vector<std::int64_t> shape;
};
Image read_image(const std::string& path);

/// 256 levels, then BOS, MASK and PAD.
TokenSpace pixel_space(const std::vector<std::int64_t>& shape);

}  // namespace performer::data
