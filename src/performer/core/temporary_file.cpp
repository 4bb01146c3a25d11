#include "performer/core/temporary_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <string>
#include <system_error>

#include "performer/core/error.h"

namespace performer {
namespace {

constexpr std::int64_t kNames = 1'000'000;
constexpr std::size_t kMaxDigits = 10;  // of a number at a name's end

std::string prefix_of(const std::filesystem::path& target) {
  return ".tmp-" + target.filename().string() + "-";
}

// Calls `make` with one name after the other until one is free; `make` gives 0 or an errno.
template <class Make>
std::filesystem::path with_free_name(const std::filesystem::path& target, const Make& make) {
  for (std::int64_t i = 0; i < kNames; ++i) {
    const auto number = (static_cast<std::int64_t>(::getpid()) * 1000 + i) % kNames;
    auto name = folder_of(target) / fmt::format("{}{}", prefix_of(target), number);
    const int problem = make(name);
    if (problem == 0) return name;
    if (problem != EEXIST) fail_write(target, problem);
  }
  fail_write(target, EEXIST);
}

bool lock(int file) { return ::flock(file, LOCK_EX | LOCK_NB) == 0; }

// Who has the lock of a new file is about to clear it away: then its link is gone.
void wait_for_lock(int file) {
  while (::flock(file, LOCK_EX) != 0 && errno == EINTR) continue;
}

std::string path_of_descriptor(int file) { return fmt::format("/proc/self/fd/{}", file); }

FileDescriptor open_nameless(const std::filesystem::path& folder) {
#ifdef O_TMPFILE
  FileDescriptor file(::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0666));
  // Its name is given through /proc, which small containers may lack.
  if (file.get() >= 0 && ::access(path_of_descriptor(file.get()).c_str(), F_OK) == 0) return file;
#endif
  return FileDescriptor();
}

bool is_system_folder(const std::filesystem::path& folder) {
  std::error_code unknown;
  const auto path = std::filesystem::canonical(folder, unknown).string();
  return path == "/dev" || path.starts_with("/proc/");
}

// What publish() could not replace, or must not: a pipe or a device would be gone from where others
// use it. Better known now than after hours of work.
void check_target(const std::filesystem::path& target) {
  const auto name_bytes = prefix_of(target).size() + std::to_string(kNames - 1).size();
  if (name_bytes > NAME_MAX) {
    fail(ExitCode::kNoSpace, "{}: the name is {} bytes too long; choose a shorter one",
         target.string(), name_bytes - NAME_MAX);
  }
  std::error_code unknown;
  const auto kind = std::filesystem::status(target, unknown).type();
  using Type = std::filesystem::file_type;
  if (kind == Type::directory) {
    fail(ExitCode::kNoSpace, "{}: is a folder; name a file in it", target.string());
  }
  const bool replaceable = kind == Type::regular || kind == Type::not_found || kind == Type::none;
  // What is written to /dev/stdout may be a file, but the name belongs to the system.
  if (!replaceable || is_system_folder(folder_of(target))) {
    fail(ExitCode::kNoSpace, "{}: is a pipe or a device, not a file to be replaced; name a file",
         target.string());
  }
}

bool is_named(int file, const std::filesystem::path& path) {
  struct stat open {};
  struct stat there {};
  return ::fstat(file, &open) == 0 && ::lstat(path.c_str(), &there) == 0 &&
         open.st_dev == there.st_dev && open.st_ino == there.st_ino;
}

// What a living program writes is locked, and stays.
void clear_left(const std::filesystem::path& target) {
  const std::string prefix = prefix_of(target);
  std::error_code ignored;
  for (std::filesystem::directory_iterator entry(folder_of(target), ignored), end; entry != end;
       entry.increment(ignored)) {
    const std::string name = entry->path().filename().string();
    if (!name.starts_with(prefix)) continue;
    const auto number = std::string_view(name).substr(prefix.size());
    const bool ours = !number.empty() && number.size() <= kMaxDigits &&
                      number.find_first_not_of("0123456789") == number.npos;
    if (!ours || !entry->is_regular_file(ignored)) continue;
    const FileDescriptor file(
        ::open(entry->path().c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    if (file.get() < 0 || !lock(file.get())) continue;
    // Its program may have published it meanwhile, and another taken the name for a new one.
    if (is_named(file.get(), entry->path())) ::unlink(entry->path().c_str());
  }
}

}  // namespace

TemporaryFile::TemporaryFile(const std::filesystem::path& target, Naming naming) : target_(target) {
  check_target(target_);
  clear_left(target_);
  if (naming == Naming::kLast) file_ = open_nameless(folder_of(target_));
  if (file_.get() < 0) {
    open_named();
  } else {
    lock(file_.get());
  }
}

TemporaryFile::~TemporaryFile() {
  if (!name_.empty()) ::unlink(name_.c_str());
}

// Another program may clear the name away between making and locking: then it is made again.
void TemporaryFile::open_named() {
  struct stat status {};
  do {
    name_ = with_free_name(target_, [&](const std::filesystem::path& name) {
      file_ = FileDescriptor(::open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
      return file_.get() < 0 ? errno : 0;
    });
    wait_for_lock(
        file_.get());  // where a file system cannot lock, nobody clears anything away either
  } while (::fstat(file_.get(), &status) == 0 && status.st_nlink == 0);
}

void TemporaryFile::link_named() {
  const std::string open_file = path_of_descriptor(file_.get());
  name_ = with_free_name(target_, [&](const std::filesystem::path& name) {
    const int done =
        ::linkat(AT_FDCWD, open_file.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW);
    return done != 0 ? errno : 0;
  });
}

FileDescriptor TemporaryFile::duplicate() const {
  FileDescriptor copy(::fcntl(file_.get(), F_DUPFD_CLOEXEC, 0));
  if (copy.get() < 0) fail_write(target_, errno);
  return copy;
}

void TemporaryFile::publish() {
  if (name_.empty()) link_named();
  rename_path(name_, target_);
  name_.clear();
  file_.reset();
}

FileDescriptor open_unnamed(const std::filesystem::path& beside) {
  FileDescriptor file = open_nameless(folder_of(beside));
  if (file.get() >= 0) return file;
  const auto name = with_free_name(beside, [&](const std::filesystem::path& free) {
    file = FileDescriptor(::open(free.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    return file.get() < 0 ? errno : 0;
  });
  ::unlink(name.c_str());
  return file;
}

}  // namespace performer
