#include <string>

#include "performer/core/size.h"
#include "performer/pretrained/describe.h"
#include "performer/pretrained/shard_index.h"
#include "tests/fuzz/targets.h"

namespace performer::fuzz {
namespace {

// A description sizes what is compared with the headers of files, before memory is taken for it.
void check_description(const pretrained::Description& d) {
  for (const auto& place : d.places) {
    Size count = 1;
    for (const std::int64_t side : place.shape) {
      require(side >= 0, "no side of a tensor is negative");
      count = count * side;
    }
    require(place.first_row >= 0, "rows are counted from the first");
    require(d.own_name(d.file_name(place.name)) == place.name, "a written name is read again");
  }
}

}  // namespace

int pretrained(Bytes bytes) {
  const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  int taken = accepts("config.json", [&] {
    const pretrained::HfConfig config(text, "config.json");
    check_description(describe(config, {.frequencies = !text.empty() && text.back() == ' '}));
  });
  taken += accepts("index.json", [&] {
    for (const auto& [tensor, shard] : pretrained::parse_shard_index(text, "index.json")) {
      require(shard.find('/') == std::string::npos && shard.ends_with(".safetensors"),
              "a shard lies in the folder of its index");
    }
  });
  return taken;
}

}  // namespace performer::fuzz
