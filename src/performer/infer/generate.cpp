#include "performer/infer/generate.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "performer/core/error.h"
#include "performer/core/random.h"
#include "performer/models/stepper.h"

namespace performer::infer {
namespace {

constexpr std::uint8_t kSamplingStream = 0x53;
constexpr std::int64_t kMostTokens = std::int64_t{1} << 31;  // draws are numbered by 32 bits

// Uniform in [0, 1): function of seed, sequence and position.
double uniform(const SamplingOptions& options, std::int64_t sequence, std::int64_t position) {
  RandomKey key;
  key.seed = static_cast<std::uint64_t>(options.seed);
  key.draw = static_cast<std::uint32_t>(sequence);
  const auto bits = RandomStream(key, kSamplingStream).block(static_cast<std::uint32_t>(position));
  const auto word = (static_cast<std::uint64_t>(bits[0]) << 32) | bits[1];
  return static_cast<double>(word >> 11) * 0x1p-53;
}

// Cuts `order` (tokens by falling probability) to the top k and the smallest nucleus of mass top_p.
void cut_tail(std::vector<std::int64_t>& order, const std::vector<double>& p,
              const SamplingOptions& options) {
  if (options.top_k > 0 && options.top_k < static_cast<std::int64_t>(order.size())) {
    order.resize(static_cast<std::size_t>(options.top_k));
  }
  if (options.top_p >= 1) return;
  double whole = 0, mass = 0;
  for (const auto token : order) whole += p[static_cast<std::size_t>(token)];
  std::size_t kept = 0;
  while (kept < order.size() && mass < options.top_p * whole) {
    mass += p[static_cast<std::size_t>(order[kept++])];
  }
  order.resize(std::max<std::size_t>(kept, 1));
}

/// The rows of the model's batch, each a sequence.
class Batch {
 public:
  explicit Batch(std::int64_t count) : rows_(static_cast<std::size_t>(count)) {
    result.sequences.resize(rows_.size());
    for (std::int64_t i = 0; i < count; ++i) rows_[static_cast<std::size_t>(i)].sequence = i;
  }

  /// Draws token number `position` of every unfinished sequence; whether any is left.
  bool sample(const at::Tensor& logits, const SamplingOptions& options, std::int64_t position) {
    bool any = false;
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      Row& row = rows_[i];
      if (row.finished) continue;
      row.token =
          sample_token(logits[static_cast<std::int64_t>(i)], options, row.sequence, position);
      row.finished = std::ranges::find(options.stop, row.token) != options.stop.end();
      if (row.finished) continue;
      result.sequences[static_cast<std::size_t>(row.sequence)].push_back(row.token);
      any = true;
    }
    return any;
  }

  /// Finished rows leave the batch; that of a graph, which must then be recorded anew, in halves.
  void drop_finished(models::Stepper& stepper) {
    std::vector<std::int64_t> kept;
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      if (!rows_[i].finished) kept.push_back(static_cast<std::int64_t>(i));
    }
    const std::size_t most = stepper.recorded() ? rows_.size() / 2 : rows_.size() - 1;
    if (kept.size() > most) return;
    stepper.keep(kept);
    std::erase_if(rows_, [](const Row& row) { return row.finished; });
  }

  std::vector<std::int64_t> last_tokens() const {
    std::vector<std::int64_t> tokens;
    tokens.reserve(rows_.size());
    for (const Row& row : rows_) tokens.push_back(row.token);
    return tokens;
  }

  Generated result;

 private:
  struct Row {
    std::int64_t sequence = 0, token = 0;
    bool finished = false;
  };
  std::vector<Row> rows_;
};

void check(const SamplingOptions& o, std::int64_t count) {
  const auto require = [](bool ok, const char* what, const char* rule, auto value) {
    if (!ok) fail(ExitCode::kUsage, "generate: {} must be {}, got {}", what, rule, value);
  };
  require(std::isfinite(o.temperature) && o.temperature >= 0, "temperature",
          "a finite number of 0 or more", o.temperature);
  require(o.top_p > 0 && o.top_p <= 1, "top_p", "above 0 and at most 1", o.top_p);
  require(o.top_k >= 0, "top_k", "0 or more", o.top_k);
  require(o.length >= 1 && o.length <= kMostTokens, "length", "from 1 to 2^31", o.length);
  require(count >= 1, "count", "1 or more", count);
}

}  // namespace

std::int64_t sample_token(const at::Tensor& logits, const SamplingOptions& options,
                          std::int64_t sequence, std::int64_t position) {
  const auto row = logits.to(at::kCPU, at::kDouble).contiguous();
  std::vector<double> p(row.const_data_ptr<double>(), row.const_data_ptr<double>() + row.numel());
  for (const auto token : options.forbidden) p[static_cast<std::size_t>(token)] = -INFINITY;
  if (std::any_of(p.begin(), p.end(),
                  [](double value) { return std::isnan(value) || value == INFINITY; })) {
    fail(
        ExitCode::kDiverged,
        "the model's output is not finite; its weights have diverged, or --precision is too narrow "
        "for them");
  }
  const auto best = std::max_element(p.begin(), p.end());
  if (options.temperature == 0) return best - p.begin();
  const double top = *best;
  for (auto& value : p) value = std::exp((value - top) / options.temperature);

  std::vector<std::int64_t> order(p.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
    return p[static_cast<std::size_t>(a)] > p[static_cast<std::size_t>(b)];
  });
  cut_tail(order, p, options);
  double whole = 0;
  for (const auto token : order) whole += p[static_cast<std::size_t>(token)];
  double rest = uniform(options, sequence, position) * whole;
  for (const auto token : order) {
    rest -= p[static_cast<std::size_t>(token)];
    if (rest < 0) return token;
  }
  return order.front();  // rounding left a rest: the most likely token
}

Generated generate(models::Transformer& model, const std::vector<std::int64_t>& prompt,
                   const SamplingOptions& options, std::int64_t count,
                   const std::function<bool(std::int64_t)>& on_step) {
  check(options, count);
  at::NoGradGuard no_grad;
  model->eval();
  const auto device = model->parameters().front().device();
  models::DecodeState state;
  // The prompt is read once, and its state copied for every sequence.
  auto logits = model->decode(at::tensor(prompt, at::kLong).unsqueeze(0).to(device), state)
                    .to(at::kCPU)
                    .expand({count, -1});  // [B, V]
  models::Stepper stepper(model, state.reorder(at::zeros({count}, at::kLong).to(device)));
  Batch batch(count);
  for (std::int64_t i = 0; i < options.length && batch.sample(logits, options, i); ++i) {
    if ((on_step && !on_step(i + 1)) || i + 1 == options.length) break;
    batch.drop_finished(stepper);
    logits = stepper.step(batch.last_tokens());
    batch.result.graph = batch.result.graph || stepper.recorded();
  }
  batch.result.kernel = stepper.kernel();
  batch.result.eager_reason = stepper.eager_reason();
  return std::move(batch.result);
}

}  // namespace performer::infer
