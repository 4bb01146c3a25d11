#include "performer/data/byte_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "performer/core/error.h"
#include "performer/data/file_kind.h"

namespace performer::data {
namespace {

constexpr std::size_t kPiece = std::size_t{1} << 18;
constexpr int kGzipOnly = 16 + MAX_WBITS;

}  // namespace

struct ByteSource::Inflater {
  Inflater() {
    if (inflateInit2(&stream, kGzipOnly) != Z_OK) {
      fail(ExitCode::kOutOfMemory, "gzip: no memory to unpack");
    }
  }
  ~Inflater() { inflateEnd(&stream); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  z_stream stream{};
  std::unique_ptr<char[]> out = std::make_unique<char[]>(kPiece);
  bool inside = true;  // of a member: the end of the file may not come
  bool over = false;   // the last member has ended
};

ByteSource::ByteSource(std::string path, Content content)
    : name_(std::move(path)), content_(content) {
  if (name_ == "-") {
    name_ = "<standard input>";
    file_ = STDIN_FILENO;
  } else {
    file_ = ::open(name_.c_str(), O_RDONLY | O_CLOEXEC);
    if (file_ < 0) fail(ExitCode::kBadInput, "{}: cannot be opened: {}", name_, strerror(errno));
  }
  struct stat info {};
  const bool known = ::fstat(file_, &info) == 0;
  if (known && S_ISDIR(info.st_mode)) {
    if (file_ != STDIN_FILENO) ::close(file_);
    fail(ExitCode::kBadInput, "{}: is a folder, not a file", name_);
  }
  pipe_ = known && !S_ISREG(info.st_mode);
  raw_ = std::make_unique<char[]>(kPiece);
}

ByteSource::~ByteSource() {
  if (file_ != STDIN_FILENO) ::close(file_);
}

// The `kept` bytes at the beginning of raw_ and what follows: `least` bytes or more, unless the
// file ends before. A pipe may hand over one at a time.
std::span<const char> ByteSource::next_raw(std::size_t least, std::size_t kept) {
  std::size_t filled = kept;
  while (filled < least) {
    const ssize_t got = ::read(file_, raw_.get() + filled, kPiece - filled);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(ExitCode::kBadInput, "{}: cannot be read: {}", name_, strerror(errno));
    if (got == 0) break;
    filled += static_cast<std::size_t>(got);
  }
  raw_bytes_ += static_cast<std::int64_t>(filled - kept);
  return {raw_.get(), filled};
}

std::span<const char> ByteSource::next() {
  if (!std::exchange(begun_, true)) return first();
  return inflater_ ? next_inflated(1) : next_raw(1);
}

std::span<const char> ByteSource::first() {
  auto piece = next_raw(kMarkBytes);
  if (piece.empty() && pipe_) {
    fail(ExitCode::kBadInput, "{}: gives no data; a pipe can be read only once", name_);
  }
  if (is_gzip(piece)) {
    inflater_ = std::make_unique<Inflater>();
    pending_ = piece;
    piece = next_inflated(kMarkBytes);
  }
  refuse_other_kinds(name_, piece);
  if (content_ == Content::kBinary || byte_order_mark(piece) == 0) return piece;
  const auto rest = piece.subspan(byte_order_mark(piece));
  return rest.empty() ? next() : rest;
}

std::span<const char> ByteSource::next_inflated(std::size_t least) {
  std::size_t made = 0;
  while (made < least && !inflater_->over) inflate_pending(made);
  return {inflater_->out.get(), made};
}

// Unpacks what is there behind the `made` bytes before.
void ByteSource::inflate_pending(std::size_t& made) {
  if (pending_.empty()) pending_ = next_raw(1);
  if (pending_.empty() && inflater_->inside) {
    fail(ExitCode::kBadInput, "{}: the gzip data is cut short after {} bytes; fetch it again",
         name_, raw_bytes_);
  }
  if (!inflater_->inside && !next_member()) {
    inflater_->over = true;
    return;
  }
  z_stream& z = inflater_->stream;
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(pending_.data()));
  z.avail_in = static_cast<uInt>(pending_.size());
  z.next_out = reinterpret_cast<Bytef*>(inflater_->out.get() + made);
  z.avail_out = static_cast<uInt>(kPiece - made);
  const int status = inflate(&z, Z_NO_FLUSH);
  if (status != Z_OK && status != Z_STREAM_END && status != Z_BUF_ERROR) {
    fail(ExitCode::kBadInput, "{}: damaged gzip data before byte {}: {}", name_, raw_bytes_,
         z.msg != nullptr ? z.msg : "unknown");
  }
  pending_ = pending_.last(z.avail_in);
  inflater_->inside = status != Z_STREAM_END;
  made = kPiece - z.avail_out;
}

// Goes on to another member, as of joined files and blocked gzip; false at the end of all.
bool ByteSource::next_member() {
  if (pending_.size() == 1) {  // its mark may lie on the border of two pieces
    raw_[0] = pending_.front();
    pending_ = next_raw(2, 1);
  }
  if (pending_.empty()) return false;
  if (is_gzip(pending_)) {
    inflateReset(&inflater_->stream);
    inflater_->inside = true;
    return true;
  }
  // Zeros up to the end are padding, as of tapes; anything else would be data that nobody reads.
  for (; !pending_.empty(); pending_ = next_raw(1)) {
    if (std::ranges::all_of(pending_, [](char byte) { return byte == '\0'; })) continue;
    fail(
        ExitCode::kBadInput,
        "{}: what follows the gzip data, before byte {}, is no gzip data; fetch the file again, or "
        "unpack it with gzip -dc",
        name_, raw_bytes_);
  }
  return false;
}

std::string read_all(const std::string& path, std::int64_t max_bytes, Content content) {
  ByteSource source(path, content);
  std::string all;
  for (auto piece = source.next(); !piece.empty(); piece = source.next()) {
    if (static_cast<std::int64_t>(all.size() + piece.size()) > max_bytes) {
      fail(ExitCode::kBadInput, "{}: more than {} bytes, too long to be read whole", source.name(),
           max_bytes);
    }
    all.append(piece.data(), piece.size());
  }
  return all;
}

}  // namespace performer::data
