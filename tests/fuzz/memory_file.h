#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>

namespace performer::fuzz {

/// A file of these bytes that has a path and no place on a disk.
class MemoryFile {
 public:
  explicit MemoryFile(std::span<const std::byte> bytes) : file_(::memfd_create("input", 0)) {
    while (!bytes.empty()) {
      const auto done = ::write(file_, bytes.data(), bytes.size());
      if (done <= 0) throw std::runtime_error("memfd: cannot be written");
      bytes = bytes.subspan(static_cast<std::size_t>(done));
    }
  }
  ~MemoryFile() { ::close(file_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  std::string path() const { return "/proc/self/fd/" + std::to_string(file_); }

 private:
  int file_;
};

}  // namespace performer::fuzz
