#include "performer/data/file_kind.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "performer/core/error.h"
#include "performer/data/pds_format.h"

namespace performer::data {
namespace {

using namespace std::string_view_literals;

struct Packed {
  std::string_view mark, kind, program;
};

constexpr std::array kPacked = {
    Packed{"\x28\xB5\x2F\xFD"sv, "zstd", "zstd -dc"},
    Packed{"\xFD"
           "7zXZ\0"sv,
           "xz", "xz -dc"},
    Packed{"PK\x03\x04"sv, "zip", "unzip -p"},
    Packed{"\x04\x22\x4D\x18"sv, "lz4", "lz4 -dc"},
};
// "BZh", the size of the blocks, the mark of the first block.
constexpr std::string_view kBzip2 = "BZh", kBzip2Block = "1AY&SY";

std::string_view as_text(std::span<const char> bytes) { return {bytes.data(), bytes.size()}; }

[[noreturn]] void refuse_packed(const std::string& name, const Packed& packed) {
  fail(ExitCode::kBadInput,
       "{}: is packed with {}, which is not read here; unpack it to a file, or through a pipe that "
       "is read as -: {} {} | performer ...",
       name, packed.kind, packed.program, name);
}

}  // namespace

bool is_gzip(std::span<const char> begin) { return as_text(begin).starts_with(kGzipMark); }

std::size_t byte_order_mark(std::span<const char> begin) {
  return as_text(begin).starts_with("\xEF\xBB\xBF") ? 3 : 0;
}

void refuse_other_kinds(const std::string& name, std::span<const char> begin) {
  const std::string_view text = as_text(begin.first(std::min(begin.size(), kMarkBytes)));
  for (const Packed& packed : kPacked) {
    if (text.starts_with(packed.mark)) refuse_packed(name, packed);
  }
  if (text.starts_with(kBzip2) && text.ends_with(kBzip2Block)) {
    refuse_packed(name, {{}, "bzip2", "bzip2 -dc"});
  }
  if (text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF")) {
    fail(ExitCode::kBadInput, "{}: is UTF-16 text; convert it: iconv -f UTF-16 -t UTF-8 {}", name,
         name);
  }
  if (text.starts_with(std::string_view(pds::kMagic.data(), pds::kMagic.size()))) {
    fail(ExitCode::kBadInput,
         "{}: is a .pds file, which is read in place; name the file itself, not a pipe, and only "
         "where built files are taken",
         name);
  }
}

bool is_pipe(const std::string& path) {
  struct stat info {};
  if (path == "-") return true;
  return ::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode);
}

}  // namespace performer::data
