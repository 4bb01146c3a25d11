#include "performer/core/random_access_file.h"

#include <unistd.h>

#include <cerrno>

#include "performer/core/error.h"

namespace performer {

RandomAccessFile::RandomAccessFile(const std::filesystem::path& path)
    : path_(path), file_(open_regular(path)) {}

void RandomAccessFile::read(std::int64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t count = ::pread(file_.descriptor.get(), out.data(), out.size(), offset);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail_read(path_, errno);
    if (count == 0) {
      fail(ExitCode::kCorrupt,
           "{}: ends at byte {} while it is read; it was {} bytes long when it was opened",
           path_.string(), offset, size());
    }
    offset += count;
    out = out.subspan(static_cast<std::size_t>(count));
  }
}

}  // namespace performer
