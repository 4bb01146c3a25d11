#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "performer/data/pixels.h"

namespace performer::data {

/// Values of an image of that shape (rows, columns, channels). kUsage where it has no PNG form: a
/// side outside 1 ... 16,384, or another number of channels than 1 (grey) or 3 (colour).
std::int64_t num_values(std::span<const std::int64_t> shape);

/// The bytes of a PNG file.
std::string png_bytes(const Image& image);

/// The shape of contact_sheet's picture of `count` images; kUsage where it is too large to be one.
std::vector<std::int64_t> sheet_shape(std::span<const std::int64_t> shape, std::int64_t count,
                                      std::int64_t scale);

/// Images of one shape side by side, as near to a square as their number allows, each value
/// enlarged to a block of `scale` x `scale` points, with light lines between the images.
Image contact_sheet(std::span<const Image> images, std::int64_t scale);

/// The scale at which a person sees an image of that shape on a screen: its longer side has 100
/// points or more.
std::int64_t visible_scale(std::span<const std::int64_t> shape);

}  // namespace performer::data
