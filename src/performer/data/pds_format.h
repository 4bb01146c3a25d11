#pragma once

#include <array>
#include <bit>
#include <cstdint>

/// The built form of a set of proteins (.pds), little-endian:
///
///   header     32 bytes
///   tokens     one byte a residue, sequence after sequence, then zeros up to a multiple of 8
///   index      for each sequence the number of tokens up to its end, 8 bytes
///   checksums  CRC-32 of each 64 KiB of tokens, 4 bytes, then zeros up to a multiple of 8
///   footer     64 bytes: what was counted, and checksums of the parts
///
/// Written in one pass from start to end: what is known only then is in the footer.
namespace performer::data::pds {

static_assert(std::endian::native == std::endian::little,
              "numbers are read as they lie in the file");

inline constexpr std::array<char, 8> kMagic = {'P', 'E', 'R', 'F', 'P', 'D', 'S', '\n'};
inline constexpr std::array<char, 8> kEndMagic = {'P', 'D', 'S', '-', 'E', 'N', 'D', '\n'};
inline constexpr std::uint32_t kVersion = 1;
inline constexpr std::int64_t kBlock = 1 << 16;
inline constexpr std::int64_t kAlign = 8;

struct Header {
  std::array<char, 8> magic = kMagic;
  std::uint32_t version = kVersion;
  std::uint32_t vocabulary = 0;
  std::array<std::uint32_t, 3> reserved{};
  std::uint32_t crc = 0;  // of the bytes before it
};
static_assert(sizeof(Header) == 32);

struct Footer {
  std::array<char, 8> magic = kEndMagic;
  std::uint64_t sequences = 0;
  std::uint64_t tokens = 0;
  std::uint64_t index_offset = 0;
  std::uint64_t checksums_offset = 0;
  std::uint32_t header_crc = 0;
  std::uint32_t index_crc = 0;
  std::uint32_t checksums_crc = 0;
  std::uint32_t reserved = 0;
  std::uint32_t padding_zero = 0;
  std::uint32_t crc = 0;  // of the bytes before it
};
static_assert(sizeof(Footer) == 64);

}  // namespace performer::data::pds
