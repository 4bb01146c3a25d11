#include <memory>
#include <utility>

#include "performer/core/error.h"
#include "performer/data/dataset.h"
#include "performer/data/labelled.h"
#include "performer/data/pds_file.h"
#include "performer/data/pixels.h"
#include "performer/data/recall.h"
#include "performer/data/sequence_dataset.h"
#include "performer/data/sequence_source.h"
#include "performer/data/splits.h"
#include "performer/data/text.h"
#include "performer/data/token_stream.h"

namespace performer::data {
namespace {

std::string path_or_fail(const DataConfig& config, Split split) {
  const SplitPlace place = place_of(config, split);
  if (place.path.empty()) fail(ExitCode::kUsage, "data.{}: no file is named", name_of(split));
  return place.path;
}

std::unique_ptr<SequenceSource> open_proteins(const DataConfig& config, Split split) {
  const std::string path = path_or_fail(config, split);
  const bool marked = place_of(config, split).marked;
  if (is_pds(path)) {
    if (marked || config.deduplicate) {
      fail(ExitCode::kUsage, "data.{}: {} keeps no ids and is not changed; {} before `data build`",
           marked ? "split_table" : "deduplicate", path,
           marked ? "use `performer data split`" : "deduplicate with `--deduplicate`");
    }
    return std::make_unique<PdsFile>(path);
  }
  FastaOptions options{.deduplicate = config.deduplicate, .keep = {}};
  if (marked) {
    options.keep = [table = read_split_table(config.split_table), split](const std::string& id) {
      const auto found = table.find(id);
      return found != table.end() && found->second == name_of(split);
    };
  }
  auto sequences = read_fasta(path, options).sequences;
  if (sequences->size() == 0) {
    fail(ExitCode::kBadInput, "{}: no sequence of it is marked {} in {}", path, name_of(split),
         config.split_table);
  }
  return sequences;
}

std::unique_ptr<Dataset> open_pixels(const DataConfig& config, Split split,
                                     const TokenSpace& space) {
  const std::string path = path_or_fail(config, split);
  Images images = read_images(path);
  if (images.shape != space.shape) {
    fail(ExitCode::kBadInput, "{}: its images have another size than those of the training data",
         path);
  }
  return std::make_unique<SequenceDataset>(config, space, std::move(images.sequences));
}

}  // namespace

bool has_split(const DataConfig& config, Split split) {
  if (config.task == "recall") return true;
  const SplitPlace place = place_of(config, split);
  if (!place.marked) return !place.path.empty();
  if (config.task == "protein") {
    for (const auto& [id, name] : read_split_table(config.split_table)) {
      if (name == name_of(split)) return true;
    }
    return false;
  }
  return has_labelled_split(config, split);
}

TokenSpace make_token_space(const DataConfig& config) {
  check(config);
  if (config.task == "recall") return recall_space(config);
  if (config.task == "text") return text_space(config);
  if (config.task == "classify" || config.task == "match") return labelled_space(config);
  if (config.task == "pixels") {
    return pixel_space(read_images(path_or_fail(config, Split::kTrain)).shape);
  }
  TokenSpace space = protein_space();
  if (config.join) space.start = space.eos;
  return space;
}

std::unique_ptr<Dataset> open_dataset(const DataConfig& config, Split split,
                                      const TokenSpace& space) {
  check(config);
  if (config.task == "recall") return std::make_unique<RecallDataset>(config, space, split);
  if (config.task == "classify" || config.task == "match") {
    return open_labelled(config, split, space);
  }
  if (config.task == "pixels") return open_pixels(config, split, space);
  if (config.task == "text") {
    return std::make_unique<BlockDataset>(config, space,
                                          open_text(path_or_fail(config, split), space));
  }
  auto proteins = open_proteins(config, split);
  if (!config.join) {
    return std::make_unique<SequenceDataset>(config, space, std::move(proteins));
  }
  const auto seed = static_cast<std::uint64_t>(config.seed);
  return std::make_unique<BlockDataset>(
      config, space, std::make_unique<JoinedStream>(std::move(proteins), space.eos, seed));
}

std::unique_ptr<Dataset> open_dataset(const DataConfig& config, Split split) {
  return open_dataset(config, split, make_token_space(config));
}

}  // namespace performer::data
