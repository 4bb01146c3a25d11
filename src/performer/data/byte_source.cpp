#include "performer/data/byte_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "performer/core/error.h"

namespace performer::data {
namespace {

constexpr std::size_t kPiece = std::size_t{1} << 18;
constexpr int kGzipOnly = 16 + MAX_WBITS;

bool is_gzip(std::span<const char> bytes) {
  return bytes.size() >= 2 && bytes[0] == '\x1f' && bytes[1] == '\x8b';
}

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
};

ByteSource::ByteSource(std::string path) : name_(std::move(path)) {
  if (name_ == "-") {
    name_ = "<standard input>";
    file_ = STDIN_FILENO;
  } else {
    file_ = ::open(name_.c_str(), O_RDONLY | O_CLOEXEC);
    if (file_ < 0) fail(ExitCode::kBadInput, "{}: cannot be opened: {}", name_, strerror(errno));
  }
  struct stat info {};
  if (::fstat(file_, &info) == 0 && S_ISDIR(info.st_mode)) {
    ::close(file_);
    fail(ExitCode::kBadInput, "{}: is a folder, not a file", name_);
  }
  raw_ = std::make_unique<char[]>(kPiece);
}

ByteSource::~ByteSource() {
  if (file_ != STDIN_FILENO) ::close(file_);
}

std::span<const char> ByteSource::next_raw() {
  // A pipe may hand over a single byte: the first piece must show both bytes of gzip's mark.
  std::size_t filled = 0;
  do {
    const ssize_t got = ::read(file_, raw_.get() + filled, kPiece - filled);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(ExitCode::kBadInput, "{}: cannot be read: {}", name_, strerror(errno));
    if (got == 0) break;
    filled += static_cast<std::size_t>(got);
  } while (filled < 2);
  raw_bytes_ += static_cast<std::int64_t>(filled);
  return {raw_.get(), filled};
}

std::span<const char> ByteSource::next() {
  if (inflater_) return next_inflated();
  const auto piece = next_raw();
  if (begun_ || !is_gzip(piece)) {
    begun_ = true;
    return piece;
  }
  begun_ = true;
  inflater_ = std::make_unique<Inflater>();
  pending_ = piece;
  return next_inflated();
}

std::span<const char> ByteSource::next_inflated() {
  z_stream& z = inflater_->stream;
  for (;;) {
    if (pending_.empty()) pending_ = next_raw();
    if (pending_.empty()) {
      if (!inflater_->inside) return {};
      fail(ExitCode::kBadInput, "{}: the gzip data is cut short after {} bytes; fetch it again",
           name_, raw_bytes_);
    }
    if (!inflater_->inside) {  // another member, as of joined files
      inflateReset(&z);
      inflater_->inside = true;
    }
    z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(pending_.data()));
    z.avail_in = static_cast<uInt>(pending_.size());
    z.next_out = reinterpret_cast<Bytef*>(inflater_->out.get());
    z.avail_out = kPiece;
    const int status = inflate(&z, Z_NO_FLUSH);
    if (status != Z_OK && status != Z_STREAM_END && status != Z_BUF_ERROR) {
      fail(ExitCode::kBadInput, "{}: damaged gzip data before byte {}: {}", name_, raw_bytes_,
           z.msg != nullptr ? z.msg : "unknown");
    }
    pending_ = pending_.last(z.avail_in);
    inflater_->inside = status != Z_STREAM_END;
    const std::size_t made = kPiece - z.avail_out;
    if (made > 0) return {inflater_->out.get(), made};
  }
}

std::string read_all(const std::string& path, std::int64_t max_bytes) {
  ByteSource source(path);
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
