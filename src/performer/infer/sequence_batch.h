#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "performer/data/token_space.h"
#include "performer/data/whole_sequences.h"
#include "performer/models/transformer.h"

/// Whole sequences through a model, several at once: what commands share that read them.
namespace performer::infer {

/// Which sequences are computed together: rows of about the same length, longest first, of at most
/// `tokens` tokens with padding, or one alone. A function of the lengths, so that a command that
/// goes on makes the batches that it would have made.
std::vector<std::vector<std::int64_t>> plan_batches(const std::vector<std::int64_t>& lengths,
                                                    std::int64_t tokens);

struct SequenceBatch {
  at::Tensor tokens, real, regular;  // int64, bool, bool [B, L]: real ones are no padding, regular
                                     // ones neither padding nor specials
  models::ModelInput input(at::Device device) const;
};

/// Some sequences, or with `length` > 0 their beginnings. Where a sequence begins with BOS and the
/// model was trained on texts behind another token (space.start), it gets that one.
SequenceBatch read_batch(const data::WholeSequences& sequences, const data::TokenSpace& space,
                         std::span<const std::int64_t> batch, std::int64_t length = 0);

/// Calls `run` with all rows. Where the memory is too small for them, with halves one after the
/// other, down to single rows; `too_large` is to refuse one that does not fit alone. Rows that
/// were done before memory ran out are run again.
using RunRows = std::function<void(std::span<const std::int64_t> rows)>;
void run_in_halves(std::span<const std::int64_t> rows, const RunRows& run,
                   const std::function<void(std::int64_t row)>& too_large);

}  // namespace performer::infer
