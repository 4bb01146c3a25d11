#include "performer/train/generate.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "performer/core/random.h"

namespace performer::train {
namespace {

constexpr std::uint8_t kSamplingStream = 0x53;

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

}  // namespace

std::int64_t sample_token(const at::Tensor& logits, const SamplingOptions& options,
                          std::int64_t sequence, std::int64_t position) {
  const auto row = logits.to(at::kCPU, at::kDouble).contiguous();
  std::vector<double> p(row.const_data_ptr<double>(), row.const_data_ptr<double>() + row.numel());
  for (const auto token : options.forbidden) p[static_cast<std::size_t>(token)] = -INFINITY;
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

std::vector<std::int64_t> generate(models::Transformer& model,
                                   const std::vector<std::int64_t>& prompt,
                                   const SamplingOptions& options, std::int64_t sequence,
                                   const std::function<bool(std::int64_t)>& on_token) {
  at::NoGradGuard no_grad;
  model->eval();
  const auto device = model->parameters().front().device();
  const auto as_input = [&](const std::vector<std::int64_t>& tokens) {
    return at::tensor(tokens, at::kLong).unsqueeze(0).to(device);  // [1, T]
  };
  models::DecodeState state;
  auto logits = model->decode(as_input(prompt), state);  // [1, V]
  std::vector<std::int64_t> tokens;
  for (std::int64_t i = 0; i < options.length; ++i) {
    const auto token = sample_token(logits[0], options, sequence, i);
    if (token == options.stop) break;
    tokens.push_back(token);
    if (on_token && !on_token(token)) break;
    if (i + 1 < options.length) logits = model->decode(as_input({token}), state);
  }
  return tokens;
}

}  // namespace performer::train
