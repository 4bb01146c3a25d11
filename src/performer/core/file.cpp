#include "performer/core/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <system_error>
#include <utility>
#include <vector>

#include "performer/core/error.h"
#include "performer/core/temporary_file.h"

namespace performer {
namespace {

constexpr std::int64_t kPiece = 1 << 20;
constexpr std::int64_t kLeastPiece = 1 << 12;  // files of /proc claim to be empty
// Linux moves at most about 2 GiB in one call; smaller pieces keep bytes in cache between hash and
// write.
constexpr std::size_t kWritePiece = 1 << 20;

using TakePiece = std::function<void(std::span<const std::byte>)>;

std::int64_t piece_size(std::int64_t file_size) {
  // One byte more than a small file has shows its end; a megabyte for each would take longer to
  // clear than the file to read.
  return std::clamp(file_size, kLeastPiece - 1, kPiece - 1) + 1;
}

}  // namespace

void fail_read(const std::filesystem::path& path, int error_number) {
  fail(ExitCode::kBadInput, "{}: cannot be read: {}", path.string(),
       std::generic_category().message(error_number));
}

void fail_write(const std::filesystem::path& path, int error_number) {
  if (error_number == ENOSPC || error_number == EDQUOT) {
    fail(ExitCode::kNoSpace, "{}: disk full ({}); free some space", path.string(),
         std::generic_category().message(error_number));
  }
  fail(ExitCode::kNoSpace, "{}: cannot be written: {}", path.string(),
       std::generic_category().message(error_number));
}

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
  if (this != &other) {
    reset();
    fd_ = other.release();
  }
  return *this;
}

int FileDescriptor::release() { return std::exchange(fd_, -1); }

bool FileDescriptor::reset() {
  const int fd = release();
  return fd < 0 || ::close(fd) == 0;
}

std::filesystem::path folder_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

RegularFile open_regular(const std::filesystem::path& path) {
  // Without O_NONBLOCK, opening a pipe of this name would wait for a writer for ever.
  FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status {};
  if (file.get() < 0 || ::fstat(file.get(), &status) != 0) fail_read(path, errno);
  if (!S_ISREG(status.st_mode)) {
    fail(ExitCode::kBadInput, "{}: {}, where a file is needed", path.string(),
         S_ISDIR(status.st_mode) ? "a folder" : "a pipe or a device");
  }
  return {std::move(file), status.st_size};
}

void read_pieces(const std::filesystem::path& path, const TakePiece& take) {
  const RegularFile file = open_regular(path);
  std::vector<std::byte> piece(static_cast<std::size_t>(piece_size(file.size)));
  while (true) {
    const ssize_t count = ::read(file.descriptor.get(), piece.data(), piece.size());
    if (count > 0) {
      take(std::span(piece).first(static_cast<std::size_t>(count)));
    } else if (count == 0) {
      return;
    } else if (errno != EINTR) {
      fail_read(path, errno);
    }
  }
}

std::string read_file(const std::filesystem::path& path, std::int64_t max_bytes) {
  std::string text;
  read_pieces(path, [&](std::span<const std::byte> piece) {
    if (static_cast<std::int64_t>(text.size() + piece.size()) > max_bytes) {
      fail(ExitCode::kBadInput, "{}: larger than the {} bytes such a file may have", path.string(),
           max_bytes);
    }
    text.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  });
  return text;
}

bool is_there(const std::filesystem::path& path) {
  std::error_code unknown;
  return std::filesystem::exists(std::filesystem::symlink_status(path, unknown));
}

void fsync_folder(const std::filesystem::path& folder) {
  const FileDescriptor file(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // Some network file systems cannot sync folders (EINVAL); their renames are the server's matter.
  if (file.get() < 0 || (::fsync(file.get()) != 0 && errno != EINVAL)) {
    fail_write(folder, errno);
  }
}

void rename_path(const std::filesystem::path& from, const std::filesystem::path& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0) {
    fail_write(to, errno);
  }
}

FileWriter::FileWriter(std::filesystem::path path)
    : path_(std::move(path)),
      file_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {
  if (file_.get() < 0) {
    fail_write(path_, errno);
  }
}

FileWriter::FileWriter(std::filesystem::path path, FileDescriptor file)
    : path_(std::move(path)), file_(std::move(file)) {}

void FileWriter::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const auto piece = bytes.first(std::min(bytes.size(), kWritePiece));
    const ssize_t count = ::write(file_.get(), piece.data(), piece.size());
    if (count < 0) {
      if (errno == EINTR) {
        continue;
      }
      fail_write(path_, errno);
    }
    const auto written = static_cast<std::size_t>(count);
    hash_.update(piece.first(written));
    bytes_ += count;
    bytes = bytes.subspan(written);
  }
}

std::string FileWriter::finish() {
  if (::fsync(file_.get()) != 0 || !file_.reset()) {
    fail_write(path_, errno);
  }
  return hash_.finish();
}

AtomicFile::AtomicFile(const std::filesystem::path& path)
    : path_(path),
      temporary_(std::make_unique<TemporaryFile>(path)),
      writer_(path, temporary_->duplicate()) {}

AtomicFile::~AtomicFile() = default;

std::string AtomicFile::commit() {
  std::string hash = writer_.finish();
  temporary_->publish();
  fsync_folder(folder_of(path_));
  return hash;
}

void write_file_atomic(const std::filesystem::path& path, std::string_view bytes) {
  AtomicFile file(path);
  file.writer().write(bytes);
  file.commit();
}

}  // namespace performer
