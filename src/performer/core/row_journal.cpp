#include "performer/core/row_journal.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "performer/core/crc32c.h"
#include "performer/core/error.h"
#include "performer/core/json.h"
#include "performer/core/random_access_file.h"

namespace performer {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kMagic = "performer rows 1 ";
constexpr std::int64_t kMostHead = 1 << 20;

struct RecordHead {
  std::int64_t row = 0, count = 0;
};

std::string_view bytes_of(const RecordHead& head) {
  return {reinterpret_cast<const char*>(&head), sizeof head};
}

std::string record_of(const RecordHead& head, std::span<const float> numbers) {
  std::string record(bytes_of(head));
  record.append(reinterpret_cast<const char*>(numbers.data()), numbers.size_bytes());
  const std::uint32_t crc = crc32c(record);
  record.append(reinterpret_cast<const char*>(&crc), sizeof crc);
  return record;
}

std::string differences(const Json& given, const Json& found) {
  std::string text;
  for (const auto& [key, value] : given.items()) {
    const Json other = found.is_object() && found.contains(key) ? found[key] : Json();
    if (other == value) continue;
    text += fmt::format("{}{} was {}, is {}", text.empty() ? "" : "; ", key, other.dump(),
                        value.dump());
  }
  return text;
}

}  // namespace

RowJournal::RowJournal(std::filesystem::path path, const Json& identity, std::int64_t rows,
                       bool restart)
    : path_(std::move(path)), places_(static_cast<std::size_t>(rows)) {
  open_locked();
  struct stat status {};
  if (::fstat(file_.get(), &status) != 0) fail_write(path_, errno);
  const std::string head = std::string(kMagic) + identity.dump() + "\n";
  if (status.st_size == 0 || restart) {
    begin_anew(head);
  } else {
    take_up(identity, head, status.st_size);
  }
}

// A journal that is there: of the same, or refused.
void RowJournal::take_up(const Json& identity, const std::string& head, std::int64_t size) {
  std::string start(static_cast<std::size_t>(std::min(size, kMostHead)), 0);
  RandomAccessFile(path_).read(0, std::as_writable_bytes(std::span(start)));
  const auto end = start.find('\n');
  if (!start.starts_with(kMagic) || end == std::string::npos) {
    // A head that was cut short holds no rows; anything else is somebody's file.
    if (head.starts_with(start)) return begin_anew(head);
    fail(ExitCode::kUsage,
         "{}: is in the way and no journal of ours; move it away, or pass --restart",
         path_.string());
  }
  const auto found =
      try_parse_json(std::string_view(start).substr(kMagic.size(), end - kMagic.size()));
  const auto other = differences(identity, found.value_or(Json()));
  if (!other.empty()) {
    fail(ExitCode::kUsage, "{}: was begun for something else: {}; pass --restart to begin anew",
         path_.string(), other);
  }
  scan(static_cast<std::int64_t>(end) + 1, size);
}

void RowJournal::open_locked() {
  file_ = FileDescriptor(::open(
      path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC, 0666));
  struct stat status {};
  if (file_.get() < 0 || ::fstat(file_.get(), &status) != 0) fail_write(path_, errno);
  if (!S_ISREG(status.st_mode)) {
    fail(ExitCode::kNoSpace, "{}: a pipe or device is in the place of a file; move it away",
         path_.string());
  }
  if (::flock(file_.get(), LOCK_EX | LOCK_NB) != 0) {
    fail(ExitCode::kUsage, "{}: another program is writing it; wait for it, or name another file",
         path_.string());
  }
}

void RowJournal::begin_anew(const std::string& head) {
  if (::ftruncate(file_.get(), 0) != 0) fail_write(path_, errno);
  end_ = 0;
  write(head);
}

// Up to the first record that is not whole; what follows is cut off.
void RowJournal::scan(std::int64_t at, std::int64_t size) {
  const RandomAccessFile file(path_);
  std::string record;
  constexpr auto kFrame = static_cast<std::int64_t>(sizeof(RecordHead) + sizeof(std::uint32_t));
  while (size - at >= kFrame) {
    RecordHead head;
    file.read(at, std::as_writable_bytes(std::span(&head, 1)));
    const bool fits = head.row >= 0 && head.row < static_cast<std::int64_t>(places_.size()) &&
                      head.count >= 0 && head.count <= (size - at - kFrame) / 4;
    if (!fits) break;
    record.resize(static_cast<std::size_t>(kFrame + 4 * head.count));
    file.read(at, std::as_writable_bytes(std::span(record)));
    std::uint32_t crc = 0;
    std::memcpy(&crc, record.data() + record.size() - sizeof crc, sizeof crc);
    if (crc32c(std::string_view(record).substr(0, record.size() - sizeof crc)) != crc) break;
    auto& place = places_[static_cast<std::size_t>(head.row)];
    if (place.begin < 0) ++done_;
    place = {at + static_cast<std::int64_t>(sizeof head), head.count};
    at += static_cast<std::int64_t>(record.size());
  }
  if (::ftruncate(file_.get(), at) != 0) fail_write(path_, errno);
  end_ = at;
}

void RowJournal::write(std::string_view bytes) {
  const std::string_view all = bytes;
  while (!bytes.empty()) {
    const ssize_t count = ::write(file_.get(), bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      const int problem = errno;
      if (::ftruncate(file_.get(), end_) != 0) fail_write(path_, errno);
      fail_write(path_, problem);
    }
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
  end_ += static_cast<std::int64_t>(all.size());
}

void RowJournal::add(std::int64_t row, std::span<const float> numbers) {
  const RecordHead head{row, static_cast<std::int64_t>(numbers.size())};
  const std::int64_t begin = end_ + static_cast<std::int64_t>(sizeof head);
  write(record_of(head, numbers));
  auto& place = places_[static_cast<std::size_t>(row)];
  if (place.begin < 0) ++done_;
  place = {begin, head.count};
}

std::vector<float> RowJournal::read(std::int64_t row) const {
  const Place& place = places_[static_cast<std::size_t>(row)];
  std::vector<float> numbers(static_cast<std::size_t>(place.count));
  auto bytes = std::as_writable_bytes(std::span(numbers));
  std::int64_t at = place.begin;
  while (!bytes.empty()) {
    const ssize_t count = ::pread(file_.get(), bytes.data(), bytes.size(), at);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail_read(path_, errno);
    if (count == 0) fail(ExitCode::kCorrupt, "{}: was cut short meanwhile", path_.string());
    bytes = bytes.subspan(static_cast<std::size_t>(count));
    at += count;
  }
  return numbers;
}

void RowJournal::remove() {
  if (::unlink(path_.c_str()) != 0 && errno != ENOENT) fail_write(path_, errno);
}

}  // namespace performer
