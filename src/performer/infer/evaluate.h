#pragma once

#include <cstdint>
#include <functional>

#include "performer/data/batch_stream.h"
#include "performer/models/transformer.h"

namespace performer::infer {

struct Evaluation {
  double loss_sum = 0, correct = 0;
  std::int64_t targets = 0, tokens = 0, samples = 0;
  double seconds = 0;

  double loss() const;        // mean of -log p
  double accuracy() const;    // share of targets that are the first choice
  double perplexity() const;  // exp(loss)
  double bits() const;        // loss / ln 2: bits per dimension
};

struct RowScore {
  double loss_sum = 0, correct = 0;
  std::int64_t targets = 0;
};

struct EvaluationOptions {
  std::int64_t batch = 16;       // rows at once
  std::int64_t max_batches = 0;  // 0: the whole split
  at::Device device = at::kCPU;
  std::function<void(std::int64_t done, std::int64_t all)> progress;
  std::function<void(std::int64_t sample, const RowScore& score)> on_row;  // of each row, in order
};

/// The model on every row of `rows` (a stream for evaluation), in their own order, without dropout
/// and gradients.
Evaluation evaluate(models::Transformer& model, const data::BatchStream& rows,
                    const EvaluationOptions& options);

}  // namespace performer::infer
