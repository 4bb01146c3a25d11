#include <nlohmann/json.hpp>
#include <string>

#include "performer/core/json.h"
#include "performer/run/checkpoint_manifest.h"
#include "tests/fuzz/targets.h"

namespace performer::fuzz {

int json(Bytes bytes) {
  const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  int taken = accepts("input.json", [&] {
    const auto value = parse_json(text, "input.json");
    require(parse_json(value.dump(), "again.json") == value, "what is written reads back the same");
  });
  taken += accepts("manifest.json", [&] {
    const auto manifest = run::parse_manifest(text, "manifest.json");
    require(run::manifest_text(manifest) == text, "a manifest has one spelling");
  });
  taken += accepts("latest", [&] {
    const auto pointer = run::parse_pointer(text, "latest");
    require(run::pointer_text(pointer) == text, "a pointer has one spelling");
  });
  return taken;
}

}  // namespace performer::fuzz
