#include "performer/pretrained/tensor_folder.h"

#include <set>
#include <system_error>

#include "performer/core/error.h"
#include "performer/core/file.h"
#include "performer/core/safe_text.h"
#include "performer/pretrained/shard_index.h"

namespace performer::pretrained {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSingle = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";
constexpr std::int64_t kMostHeader = 1 << 23;  // of a file; beyond what any model has

[[noreturn]] void refuse_without_tensors(const fs::path& folder) {
  for (const char* name : {"pytorch_model.bin", "pytorch_model.bin.index.json", "model.pt",
                           "pytorch_model.pt", "model.ckpt"}) {
    if (!is_there(folder / name)) continue;
    fail(ExitCode::kBadInput,
         "{}: is pickled, and reading a pickle runs what is in it; convert the folder once where "
         "you trust it: python -c \"from transformers import AutoModel as M; "
         "M.from_pretrained('{}').save_pretrained('{}-safe')\"",
         (folder / name).string(), folder.string(), folder.string());
  }
  for (const char* name : {"tf_model.h5", "flax_model.msgpack", "model.gguf", "model.onnx"}) {
    if (!is_there(folder / name)) continue;
    fail(ExitCode::kBadInput, "{}: this format is not read; needed is {}", (folder / name).string(),
         kSingle);
  }
  fail(ExitCode::kBadInput, "{}: has neither {} nor {}", folder.string(), kSingle, kIndex);
}

}  // namespace

TensorFolder::TensorFolder(const fs::path& folder) {
  const bool single = is_there(folder / kSingle), shards = is_there(folder / kIndex);
  if (single && shards) {
    fail(ExitCode::kBadInput, "{}: has both {} and {}; move away the one that is not meant",
         folder.string(), kSingle, kIndex);
  }
  if (shards) {
    open_shards(folder);
    return;
  }
  if (!single) refuse_without_tensors(folder);
  const auto& reader = open(folder / kSingle);
  for (const auto& entry : reader.tensors()) {
    tensors_[entry.name] = {&reader, &entry, files_.back().string()};
  }
}

const safetensors::Reader& TensorFolder::open(const fs::path& file) {
  files_.push_back(file);
  readers_.push_back(std::make_unique<safetensors::Reader>(file, kMostHeader));
  return *readers_.back();
}

void TensorFolder::open_shards(const fs::path& folder) {
  constexpr std::size_t kMostShards = 1 << 10;  // each is kept open
  const auto index = (folder / kIndex).string();
  const auto home = parse_shard_index(read_file(index, 1 << 24), index);
  std::set<std::string> shards;
  for (const auto& [tensor, shard] : home) shards.insert(shard);
  if (shards.size() > kMostShards) {
    fail(ExitCode::kCorrupt, "{}: names {} files, at most {} are possible", index, shards.size(),
         kMostShards);
  }
  for (const auto& shard : shards) {
    if (!is_there(folder / shard)) {
      fail(ExitCode::kCorrupt, "{}: missing, though {} names it", (folder / shard).string(), index);
    }
    const auto& reader = open(folder / shard);
    for (const auto& entry : reader.tensors()) {
      const auto named = home.find(entry.name);
      if (named == home.end() || named->second != shard) {
        fail(ExitCode::kCorrupt, "{}: holds tensor {}, which {} {}", files_.back().string(),
             shown(entry.name), index,
             named == home.end() ? "does not name" : "says to be in " + named->second);
      }
      tensors_[entry.name] = {&reader, &entry, files_.back().string()};
    }
  }
  for (const auto& [tensor, shard] : home) {
    if (tensors_.contains(tensor)) continue;
    fail(ExitCode::kCorrupt, "{}: tensor {} is not in {}, where {} says it is", folder.string(),
         shown(tensor), shard, kIndex);
  }
}

}  // namespace performer::pretrained
