#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "performer/core/file.h"

namespace performer::data {

/// Writes a .pds file in one pass. Memory: two buffers and 4 bytes for each 64 KiB of tokens; the
/// index waits in an unnamed temporary file beside the output. The file appears under its name
/// complete or not at all.
class PdsWriter {
 public:
  explicit PdsWriter(const std::filesystem::path& path);

  /// One sequence, not empty.
  void add(std::span<const std::uint8_t> tokens);

  /// Durable after this; returns the SHA-256 of the file.
  std::string finish();

  std::int64_t sequences() const { return sequences_; }
  std::int64_t tokens() const { return tokens_; }

 private:
  void flush_block();
  void flush_index();
  void copy_index();

  std::filesystem::path path_;
  AtomicFile file_;
  FileDescriptor spill_;
  std::vector<std::uint8_t> block_;
  std::vector<std::uint64_t> ends_;
  std::vector<std::uint32_t> checksums_;
  std::int64_t sequences_ = 0;
  std::int64_t tokens_ = 0;
  std::uint32_t index_crc_ = 0;
};

}  // namespace performer::data
