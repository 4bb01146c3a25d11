#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "performer/data/token_space.h"
#include "performer/infer/readings.h"
#include "performer/models/transformer.h"

/// How likely a language model finds sequences, and what changes in them do to that.
namespace performer::infer {

/// What stands for log p of a sequence x and of residues in it.
///   kMasked    log p(x_i | the others): each residue behind the mask in turn, L passes
///   kWildtype  log p(x_i | x): one pass without a mask; of a causal model log p(x_i | x_1 .. x_i-1)
///   kWhole     for mutations: the mutant's sequence and the wild type's as wholes, each by kMasked,
///              or exactly where the model is causal
enum class ScoreMethod : std::uint8_t { kMasked, kWildtype, kWhole };

/// By name: masked, wildtype, pseudo.
ScoreMethod parse_score_method(const std::string& name);
std::string name_of(ScoreMethod method);

/// Log-probabilities at the places of rows.
class Scorer {
 public:
  /// `letters`: tokens that are asked for beside the one that is there. kUsage for models without a
  /// head that predicts tokens.
  Scorer(models::Transformer& model, const data::TokenSpace& space,
         std::vector<std::int64_t> letters);

  /// Where a row of these tokens is asked: behind its mask alone; else at every residue, or in a
  /// causal model at every token after the first.
  std::vector<std::int64_t> places(std::span<const std::int64_t> tokens, std::int64_t masked) const;

  /// For each row log p of what is there and of the letters: float32 [places, 1 + letters]. Halves
  /// are taken where the memory is too small, as in run_in_halves.
  using Take = std::function<void(std::int64_t row, const at::Tensor& log_p)>;
  void run(const Readings& readings, std::span<const std::int64_t> batch, const Take& take);

  bool causal() const { return model_->config().causal; }

 private:
  void run_at_once(const Readings& readings, std::span<const std::int64_t> batch, const Take& take);
  at::Tensor log_probabilities(const at::Tensor& hidden, const at::Tensor& asked);

  models::Transformer& model_;
  const data::TokenSpace& space_;
  std::vector<std::int64_t> letters_;
};

}  // namespace performer::infer
