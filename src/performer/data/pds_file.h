#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "performer/core/random_access_file.h"
#include "performer/data/pds_format.h"
#include "performer/data/sequence_source.h"

namespace performer::data {

/// A .pds file, read where it is asked for. Opening checks header, footer, sizes and the whole
/// index, which stays in memory (8 bytes a sequence); tokens are checked against their checksums at
/// once in files up to kCheckedAtOnce, else 64 KiB by 64 KiB when first read. kCorrupt names what
/// is wrong, also where the file is cut short meanwhile. Of a file that is overwritten after its
/// check, other tokens may come, but none outside the alphabet.
class PdsFile final : public SequenceSource {
 public:
  static constexpr std::int64_t kCheckedAtOnce = std::int64_t{1} << 28;

  explicit PdsFile(const std::filesystem::path& path);

  std::int64_t size() const override { return static_cast<std::int64_t>(ends_.size()); }
  std::int64_t length(std::int64_t index) const override;
  void read(std::int64_t index, std::int64_t begin, std::span<std::uint8_t> out) const override;

  /// Checks all tokens.
  void verify() const;

 private:
  pds::Footer check_layout() const;
  void read_index(const pds::Footer& footer);
  void read_checksums(const pds::Footer& footer);
  void check_block(std::int64_t block) const;
  std::int64_t begin_of(std::int64_t index) const;

  std::string name_;
  RandomAccessFile file_;
  std::int64_t num_tokens_ = 0;
  std::vector<std::uint64_t> ends_;
  std::vector<std::uint32_t> checksums_;
  mutable std::vector<std::atomic<bool>> checked_;  // by block
};

/// Whether the file begins as a .pds file does; false for pipes, which are left untouched, and what
/// cannot be opened.
bool is_pds(const std::string& path);

}  // namespace performer::data
