#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "performer/data/data_config.h"
#include "performer/data/sample_random.h"
#include "performer/data/token_space.h"

namespace performer::data {

class WholeSequences;

/// Places for one row, each Dataset::length() long. What is not filled is padding.
struct Row {
  std::span<std::int64_t> tokens;
  std::span<std::int64_t> targets;   // language models; preset to kIgnore
  std::span<std::int64_t> tokens_b;  // match
};

struct RowInfo {
  std::int64_t length = 0;    // real tokens
  std::int64_t length_b = 0;  // of the second document
  std::int64_t targets = 0;   // positions with a loss
  std::int64_t label = -1;    // classify and match
};

enum class Target : std::uint8_t { kTokens, kClass, kPairClass };

/// Samples by number. Made rows are a pure function of the key; many threads may call at once.
class Dataset {
 public:
  virtual ~Dataset() = default;
  Dataset(const Dataset&) = delete;
  Dataset& operator=(const Dataset&) = delete;

  /// Samples in an epoch, at least 1.
  virtual std::int64_t size() const = 0;
  virtual RowInfo fill(const SampleKey& key, const Row& row) const = 0;
  virtual Target target() const { return Target::kTokens; }

  /// What the samples are cut from; nullptr where they are not parts of sequences.
  virtual const WholeSequences* whole() const { return nullptr; }

  /// Text: tokens / words, for the perplexity of words; 0 where there are no words.
  virtual double word_multiplier() const { return 0.0; }

  const DataConfig& config() const { return config_; }
  const TokenSpace& space() const { return space_; }
  std::int64_t length() const { return config_.length; }
  bool causal() const { return config_.objective == "causal"; }

 protected:
  Dataset(DataConfig config, TokenSpace space)
      : config_(std::move(config)), space_(std::move(space)) {}

 private:
  DataConfig config_;
  TokenSpace space_;
};

/// Whether the ids of a FASTA file are kept, to be reported.
enum class Ids : std::uint8_t { kDrop, kKeep };

/// kBadInput where the files hold no sample; kUsage where the configuration names none for `split`.
std::unique_ptr<Dataset> open_dataset(const DataConfig& config, Split split,
                                      const TokenSpace& space, Ids ids = Ids::kDrop);
std::unique_ptr<Dataset> open_dataset(const DataConfig& config, Split split);

/// Whether the configuration has data for this split (a path, marked rows, or synthetic rows).
bool has_split(const DataConfig& config, Split split);

}  // namespace performer::data
