#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "performer/core/error.h"
#include "performer/core/file.h"

namespace performer {
namespace {

void unmap(std::span<const std::byte> bytes) {
  if (!bytes.empty()) {
    ::munmap(const_cast<std::byte*>(bytes.data()), bytes.size());
  }
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) {
  // Without O_NONBLOCK, opening a pipe of this name would wait for a writer for ever.
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status {};
  if (file.get() < 0 || ::fstat(file.get(), &status) != 0) {
    fail(ExitCode::kBadInput, "{}: cannot be read: {}", path.string(),
         std::generic_category().message(errno));
  }
  if (!S_ISREG(status.st_mode)) {
    fail(ExitCode::kBadInput, "{}: not a regular file", path.string());
  }
  if (status.st_size == 0) {
    return;
  }
  const auto size = static_cast<std::size_t>(status.st_size);
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (address == MAP_FAILED) {
    fail(ExitCode::kBadInput, "{}: cannot be mapped into memory: {}", path.string(),
         std::generic_category().message(errno));
  }
  bytes_ = {static_cast<const std::byte*>(address), size};
}

MappedFile::~MappedFile() { unmap(bytes_); }

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  if (this != &other) {
    unmap(bytes_);
    bytes_ = std::exchange(other.bytes_, {});
  }
  return *this;
}

}  // namespace performer
