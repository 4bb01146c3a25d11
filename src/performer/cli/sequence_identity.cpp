#include "performer/cli/sequence_identity.h"

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "performer/core/sha256.h"

namespace performer::cli {

std::string model_hash(const infer::LoadedModel& loaded) {
  return sha256_of_file(std::filesystem::path(loaded.folder) / "manifest.json");
}

std::string content_hash(const data::WholeSequences& sequences) {
  Sha256 hash;
  std::vector<std::int64_t> tokens;
  for (std::int64_t i = 0; i < sequences.count(); ++i) {
    tokens.resize(static_cast<std::size_t>(sequences.tokens(i)));
    sequences.read(i, 0, tokens);
    const auto id = sequences.id(i);
    const std::uint64_t sizes[] = {id.size(), tokens.size()};
    hash.update(std::as_bytes(std::span(sizes)));
    hash.update(id);
    hash.update(std::as_bytes(std::span(tokens)));
  }
  return hash.finish();
}

}  // namespace performer::cli
