#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "performer/core/file.h"
#include "performer/data/sequence_source.h"

namespace performer::data {

/// A .pds file, mapped. Opening checks header, footer, sizes and the whole index; tokens are
/// checked against their checksums at once in files up to kCheckedAtOnce, else 64 KiB by 64 KiB
/// when first read. kCorrupt names what is wrong: nothing damaged is ever handed out.
class PdsFile final : public SequenceSource {
 public:
  static constexpr std::int64_t kCheckedAtOnce = std::int64_t{1} << 28;

  explicit PdsFile(const std::filesystem::path& path);

  std::int64_t size() const override { return static_cast<std::int64_t>(ends_.size()); }
  std::int64_t length(std::int64_t index) const override;
  std::span<const std::uint8_t> tokens(std::int64_t index) const override;

  /// Checks all tokens.
  void verify() const;

 private:
  void check_layout();
  void check_index() const;
  void check_block(std::int64_t block) const;
  std::uint64_t begin_of(std::int64_t index) const;

  std::string name_;
  MappedFile file_;
  std::span<const std::uint8_t> tokens_;
  std::span<const std::uint64_t> ends_;
  std::span<const std::uint32_t> checksums_;
  mutable std::vector<std::atomic<bool>> checked_;  // by block
};

/// Whether the file begins as a .pds file does; false for `-` and what cannot be opened.
bool is_pds(const std::string& path);

}  // namespace performer::data
