#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "performer/data/token_space.h"
#include "performer/data/whole_sequences.h"
#include "performer/models/transformer.h"

/// Hidden states of whole sequences, as vectors for other programs.
namespace performer::infer {

/// Of a sequence's tokens: the mean of those that are no specials, the mean of all, the first, or
/// none: a vector for each that is no special.
enum class Pool : std::uint8_t { kMean, kMeanAll, kFirst, kNone };

/// By name: mean, mean-all, first, none.
Pool parse_pool(const std::string& name);

struct EmbedOptions {
  // 0: the embeddings, N: after N blocks; -1: after all L, and the last norm; -N: after L + 1 - N.
  std::int64_t layer = -1;
  Pool pool = Pool::kMean;
  std::int64_t length = 0;  // tokens of a sequence that are read; 0: all
};

class Embedder {
 public:
  Embedder(models::Transformer& model, const data::TokenSpace& space, const EmbedOptions& options);

  /// Vectors of some sequences: float32 [E], or [residues, E] without pooling. Where the memory is
  /// too small for all at once, halves are taken one after the other, down to single sequences.
  using Take = std::function<void(std::int64_t sequence, const at::Tensor& vectors)>;
  void run(const data::WholeSequences& sequences, std::span<const std::int64_t> batch,
           const Take& take);

  /// Tokens of a sequence that are read, and its vectors.
  std::int64_t tokens(const data::WholeSequences& sequences, std::int64_t sequence) const;

 private:
  void run_at_once(const data::WholeSequences& sequences, std::span<const std::int64_t> batch,
                   const Take& take);

  models::Transformer& model_;
  const data::TokenSpace& space_;
  EmbedOptions options_;
};

}  // namespace performer::infer
