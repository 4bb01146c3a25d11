#include "performer/core/append_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "performer/core/error.h"

namespace performer {

AppendFile::AppendFile(std::filesystem::path path, Warn warn)
    : path_(std::move(path)),
      warn_(std::move(warn)),
      file_(::open(path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_NONBLOCK | O_CLOEXEC, 0666)) {
  struct stat status {};
  if (file_.get() < 0 || ::fstat(file_.get(), &status) != 0) {
    fail_write(path_, errno);
  }
  if (!S_ISREG(status.st_mode)) {
    fail(ExitCode::kNoSpace, "{}: a pipe or device is in the place of a file; move it away",
         path_.string());
  }
  size_ = status.st_size;
}

bool AppendFile::append(std::string_view record) {
  std::string_view rest = record;
  int problem = 0;
  while (!rest.empty() && problem == 0) {
    const ssize_t count = ::write(file_.get(), rest.data(), rest.size());
    if (count >= 0) {
      rest.remove_prefix(static_cast<std::size_t>(count));
    } else if (errno != EINTR) {
      problem = errno;
    }
  }
  if (problem == 0) {
    size_ += static_cast<std::int64_t>(record.size());
    failing_ = false;
    return true;
  }
  // Takes back a part of the record; shrinking needs no space.
  const bool restored = ::ftruncate(file_.get(), size_) == 0;
  ++num_lost_;
  if (!std::exchange(failing_, true)) {
    warn_(fmt::format("{}: cannot be written: {}; the run goes on without these lines{}",
                      path_.string(), std::generic_category().message(problem),
                      restored ? "" : ", one of which is cut short"));
  }
  return false;
}

void AppendFile::cut(std::int64_t size) {
  if (::ftruncate(file_.get(), size) != 0 || ::fsync(file_.get()) != 0) {
    fail_write(path_, errno);
  }
  size_ = size;
}

}  // namespace performer
