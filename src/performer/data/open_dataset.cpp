#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "performer/core/error.h"
#include "performer/data/dataset.h"
#include "performer/data/labelled.h"
#include "performer/data/pds_file.h"
#include "performer/data/pipes.h"
#include "performer/data/pixels.h"
#include "performer/data/read_fasta.h"
#include "performer/data/recall.h"
#include "performer/data/sequence_dataset.h"
#include "performer/data/split_sources.h"
#include "performer/data/text.h"
#include "performer/data/token_stream.h"

namespace performer::data {
namespace {

// FASTA files, as one after the other.
std::unique_ptr<SequenceSource> read_proteins(const DataConfig& config, Split split,
                                              const std::vector<std::string>& files, Ids ids) {
  FastaOptions options{
      .deduplicate = config.deduplicate, .keep_ids = ids == Ids::kKeep, .keep = {}};
  if (place_of(config, split).marked) {
    // Shared, since a std::function is copied.
    const auto table = std::make_shared<const SplitTable>(config.split_table);
    options.keep = [table, split](const std::string& id) { return table->find(id) == split; };
  }
  auto sequences = read_fasta(files, options).sequences;
  if (sequences->size() == 0) {
    fail(ExitCode::kBadInput, "{}: no sequence of it is marked {} in {}", files.front(),
         name_of(split), config.split_table);
  }
  return sequences;
}

std::unique_ptr<SequenceSource> open_proteins(const DataConfig& config, Split split, Ids ids) {
  const bool marked = place_of(config, split).marked;
  std::vector<std::string> written;
  std::vector<std::unique_ptr<SequenceSource>> parts;
  for (const auto& file : files_of(config, split)) {
    if (!is_pds(file)) {
      written.push_back(file);
      continue;
    }
    if (marked || config.deduplicate) {
      fail(ExitCode::kUsage, "data.{}: {} keeps no ids and is not changed; {} before `data build`",
           marked ? "split_table" : "deduplicate", file,
           marked ? "use `performer data split`" : "deduplicate with `--deduplicate`");
    }
    parts.push_back(std::make_unique<PdsFile>(file));
  }
  if (!written.empty()) parts.push_back(read_proteins(config, split, written, ids));
  return parts.size() == 1 ? std::move(parts.front())
                           : std::make_unique<JoinedSequences>(std::move(parts));
}

std::unique_ptr<Dataset> open_pixels(const DataConfig& config, Split split,
                                     const TokenSpace& space) {
  const auto files = files_of(config, split);
  Images images = read_images(files);
  if (images.shape != space.shape) {
    fail(ExitCode::kBadInput, "{}: its images have another size than those of the training data",
         files.front());
  }
  return std::make_unique<SequenceDataset>(config, space, std::move(images.sequences));
}

// Numbers in a text, of a model that was converted without its tokenizer.
void check_ids(const DataConfig& config, const TokenSpace& space) {
  if (config.task != "text") {
    fail(ExitCode::kUsage,
         "data.task: the tokens of this model are plain numbers, which only text can hold, got {}",
         config.task);
  }
  const bool masked = config.objective == "masked";
  if (space.eos < 0 || (masked && space.mask < 0)) {
    fail(ExitCode::kUsage,
         "data: texts end with a token{}, and this model names none; its config.json had no {}",
         masked ? " and are masked by one" : "", space.eos < 0 ? "eos_token_id" : "mask_token_id");
  }
}

}  // namespace

bool has_split(const DataConfig& config, Split split) {
  if (config.task == "recall") return true;
  const SplitPlace place = place_of(config, split);
  if (!place.marked) return !place.paths.empty();
  if (config.task == "protein") return SplitTable(config.split_table).contains(split);
  return has_labelled_split(config, split);
}

TokenSpace make_token_space(const DataConfig& config) {
  check(config);
  check_pipes(config);
  if (config.task == "recall") return recall_space(config);
  if (config.task == "text") return text_space(config);
  if (config.task == "classify" || config.task == "match") return labelled_space(config);
  if (config.task == "pixels") {
    return pixel_space(read_images(files_of(config, Split::kTrain)).shape);
  }
  TokenSpace space = protein_space();
  if (config.join) space.start = space.eos;
  return space;
}

std::unique_ptr<Dataset> open_dataset(const DataConfig& config, Split split,
                                      const TokenSpace& space, Ids ids) {
  check(config);
  check_pipes(config);
  if (space.kind == "ids") check_ids(config, space);
  if (config.task == "recall") return std::make_unique<RecallDataset>(config, space, split);
  if (config.task == "classify" || config.task == "match") {
    return open_labelled(config, split, space);
  }
  if (config.task == "pixels") return open_pixels(config, split, space);
  if (config.task == "text") {
    return std::make_unique<BlockDataset>(config, space, open_text(files_of(config, split), space));
  }
  auto proteins = open_proteins(config, split, ids);
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
