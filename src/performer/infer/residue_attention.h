#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>

#include "performer/infer/attention_maps.h"

namespace performer::infer {

/// BLOSUM62 (Henikoff and Henikoff 1992, as NCBI ships it) of the 20 residues in the order of
/// kResidues: log-odds of substitutions in halves of a bit. data/proteins/blosum62.txt.
inline constexpr std::int64_t kStandardResidues = 20;
using ResidueMatrix = std::array<std::array<std::int8_t, kStandardResidues>, kStandardResidues>;
extern const ResidueMatrix kBlosum62;

/// How much residues attend to residues, over heads, layers and sequences (paper, Fig. 13; Vig et
/// al. 2020): the weight that residues of one kind give to another, divided by what they would give
/// if they averaged over all that they may see.
class ResidueAttention {
 public:
  ResidueAttention();

  /// `by_kind` of LayerMaps, where kinds (int64 [L]) are places in kResidues.
  void add(const at::Tensor& by_kind, const at::Tensor& kinds, bool causal);

  /// float64 [20, 20]: 1 is plain averaging; NaN where no such pair was seen.
  at::Tensor ratios() const;

 private:
  at::Tensor weights_, expected_;  // float64 [20, 20]
};

/// Pearson's correlation of the pairs of different residues, both directions averaged, with
/// BLOSUM62. `p_value`: how often it is as high when the residues change their names at random,
/// which is Mantel's test; the same for the same seed.
struct Agreement {
  double correlation = 0, p_value = 1;
  std::int64_t pairs = 0;
};
Agreement compare_with_blosum62(const at::Tensor& ratios, std::int64_t permutations = 9999,
                                std::uint64_t seed = 0);

}  // namespace performer::infer
