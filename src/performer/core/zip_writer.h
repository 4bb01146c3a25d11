#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "performer/core/file.h"

namespace performer {

/// A zip archive of members as they are, without compression, as numpy's .npz files are. Every
/// member has the fields of zip64, so that its size has no bound.
class ZipWriter {
 public:
  using TakePiece = std::function<void(std::span<const std::byte>)>;

  explicit ZipWriter(FileWriter& out) : out_(out) {}

  /// `pieces` hands the member's bytes to what it is given, and is called twice: for their checksum,
  /// and to write them.
  void add(const std::string& name, const std::function<void(const TakePiece&)>& pieces);

  /// Writes the list of members, without which there is no archive.
  void finish();

 private:
  struct Member {
    std::string name;
    std::uint32_t crc;
    std::int64_t size, begin;
  };

  FileWriter& out_;
  std::vector<Member> members_;
};

}  // namespace performer
