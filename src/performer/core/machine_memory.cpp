#include "performer/core/machine_memory.h"

#include <sys/sysinfo.h>

#include <algorithm>
#include <charconv>

#include "performer/core/error.h"
#include "performer/core/file.h"
#include "performer/core/size.h"

namespace performer {
namespace {

// The number in a file of the control group; "max" and an absent file set no limit.
std::int64_t limit_in(const char* path) {
  std::string text;
  try {
    text = read_file(path, 1 << 10);
  } catch (const Error&) {
    return INT64_MAX;
  }
  std::int64_t limit = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), limit);
  return result.ec == std::errc() ? limit : INT64_MAX;
}

}  // namespace

std::int64_t machine_memory() {
  struct sysinfo info {};
  const auto limit = std::min(limit_in("/sys/fs/cgroup/memory.max"),
                              limit_in("/sys/fs/cgroup/memory/memory.limit_in_bytes"));
  if (::sysinfo(&info) != 0) return limit;
  const auto pages = static_cast<std::int64_t>(info.totalram + info.totalswap);
  return std::min(limit, (Size(pages) * static_cast<std::int64_t>(info.mem_unit)).value());
}

}  // namespace performer
