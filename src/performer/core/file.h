#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "performer/core/sha256.h"

/// Files that survive a kill, a power cut and a full disk. Every failure is an Error that names the
/// path: kBadInput where a file cannot be read, kNoSpace where one cannot be written.
namespace performer {

/// The whole of a regular file; kBadInput above `max_bytes`, and for folders, pipes and devices,
/// which are not waited for.
std::string read_file(const std::filesystem::path& path, std::int64_t max_bytes = 1 << 30);

/// The same, piece after piece, in constant memory.
void read_pieces(const std::filesystem::path& path,
                 const std::function<void(std::span<const std::byte>)>& take);

/// Whether anything has this name, a link to nothing or to itself too. Asks without throwing.
bool is_there(const std::filesystem::path& path);

/// Makes the names of a folder's entries durable: to be called after a file was made or renamed.
void fsync_folder(const std::filesystem::path& folder);

/// Renames, replacing what `to` names; durable only after fsync_folder.
void rename_path(const std::filesystem::path& from, const std::filesystem::path& to);

/// Throws the Error for a read or a write that failed with `error_number` (an errno).
[[noreturn]] void fail_read(const std::filesystem::path& path, int error_number);
[[noreturn]] void fail_write(const std::filesystem::path& path, int error_number);

/// The folder that a path's last name stands in.
std::filesystem::path folder_of(const std::filesystem::path& path);

/// An open file descriptor, closed with its owner.
class FileDescriptor {
 public:
  explicit FileDescriptor(int fd = -1) : fd_(fd) {}
  ~FileDescriptor() { reset(); }
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(other.release()) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;

  int get() const { return fd_; }
  int release();
  /// Closes; returns false where the system reports that closing failed.
  bool reset();

 private:
  int fd_;
};

/// A regular file opened for reading, and its size then.
struct RegularFile {
  FileDescriptor descriptor;
  std::int64_t size = 0;
};

/// kBadInput for folders, pipes and devices, which are not waited for, and what cannot be opened.
RegularFile open_regular(const std::filesystem::path& path);

/// A new file written from start to end, hashed on the way. A file that was not finished stays
/// where it is, cut short: write into a temporary place.
class FileWriter {
 public:
  explicit FileWriter(std::filesystem::path path);
  /// Into a file that is open already; `path` is what errors call it.
  FileWriter(std::filesystem::path path, FileDescriptor file);

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }

  /// Makes the bytes durable and closes; returns their SHA-256.
  std::string finish();

  std::int64_t bytes() const { return bytes_; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  FileDescriptor file_;
  Sha256 hash_;
  std::int64_t bytes_ = 0;
};

class TemporaryFile;

/// A file that appears under its name complete, or not at all: a temporary file beside it, renamed
/// by commit(). Without commit() nothing is left, of a killed program neither, and an older file of
/// that name stays.
class AtomicFile {
 public:
  explicit AtomicFile(const std::filesystem::path& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  FileWriter& writer() { return writer_; }

  /// After this the file is durable under its name; returns its SHA-256.
  std::string commit();

 private:
  std::filesystem::path path_;
  std::unique_ptr<TemporaryFile> temporary_;
  FileWriter writer_;
};

void write_file_atomic(const std::filesystem::path& path, std::string_view bytes);

}  // namespace performer
