#include "performer/core/random_access_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "performer/core/error.h"

namespace performer {
namespace {

[[noreturn]] void fail_access(const std::filesystem::path& path, int error_number) {
  fail(ExitCode::kBadInput, "{}: cannot be read: {}", path.string(),
       std::generic_category().message(error_number));
}

}  // namespace

// Without O_NONBLOCK, opening a pipe of this name would wait for a writer for ever.
RandomAccessFile::RandomAccessFile(const std::filesystem::path& path)
    : path_(path), file_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  struct stat status {};
  if (file_.get() < 0 || ::fstat(file_.get(), &status) != 0) fail_access(path_, errno);
  if (!S_ISREG(status.st_mode)) {
    fail(ExitCode::kBadInput, "{}: not a regular file", path_.string());
  }
  size_ = status.st_size;
}

void RandomAccessFile::read(std::int64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t count = ::pread(file_.get(), out.data(), out.size(), offset);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail_access(path_, errno);
    if (count == 0) {
      fail(ExitCode::kCorrupt,
           "{}: ends at byte {} while it is read; it was {} bytes long when it "
           "was opened",
           path_.string(), offset, size_);
    }
    offset += count;
    out = out.subspan(static_cast<std::size_t>(count));
  }
}

}  // namespace performer
