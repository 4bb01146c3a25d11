#include "performer/pretrained/tokenizer.h"

#include "performer/core/error.h"
#include "performer/core/file.h"
#include "performer/core/log.h"
#include "performer/data/hf/open_tokenizer.h"

namespace performer::pretrained {
namespace {

// -1 where there is none. Of several that end a sequence (infer/end_tokens.h) the first stands between
// texts.
std::int64_t special(const HfConfig& config, const char* key, std::int64_t vocabulary) {
  if (!config.has(key)) return -1;
  const auto value = config.at(key);
  const bool several = value.value().is_array();
  if (several && value.size() == 0) return -1;
  const std::int64_t first = several ? value.at(0).integer() : value.integer();
  if (first < 0 || first >= vocabulary) {
    log_info("{}: {} is no token of a vocabulary of {}, and is left out", key, first, vocabulary);
    return -1;
  }
  return first;
}

bool has_tokenizer(const std::filesystem::path& folder) {
  for (const char* name :
       {"tokenizer.json", "vocab.txt", "vocab.json", "tokenizer.model", "spiece.model"}) {
    if (is_there(folder / name)) return true;
  }
  return false;
}

}  // namespace

data::TokenSpace token_space_of(const HfConfig& config, const std::filesystem::path& folder,
                                std::int64_t vocabulary) {
  if (has_tokenizer(folder)) {
    auto space = data::open_hf_tokenizer(folder);
    if (space.vocabulary > vocabulary) {
      fail(ExitCode::kCorrupt, "{}: its tokenizer has {} tokens, its model {}", folder.string(),
           space.vocabulary, vocabulary);
    }
    space.vocabulary = vocabulary;  // rows of tokens that do not occur
    if (space.mask < 0) space.mask = special(config, "mask_token_id", vocabulary);
    return space;
  }
  auto space = data::id_space(vocabulary);
  space.pad = special(config, "pad_token_id", vocabulary);
  space.eos = special(config, "eos_token_id", vocabulary);
  space.mask = special(config, "mask_token_id", vocabulary);
  return space;
}

}  // namespace performer::pretrained
