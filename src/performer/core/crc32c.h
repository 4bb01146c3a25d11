#pragma once

#include <cstdint>
#include <string_view>

namespace performer {

/// CRC-32C (Castagnoli), as in iSCSI and TFRecord files.
std::uint32_t crc32c(std::string_view bytes);

}  // namespace performer
