#include "performer/infer/attention_maps.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "performer/models/exact_core.h"
#include "performer/ops/analysis/attention_map.h"

namespace performer::infer {
namespace {

using at::Tensor;
using models::Heads;

// Numbers of one block of columns.
constexpr std::int64_t kBlock = std::int64_t{1} << 24;

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// The attention of one layer, as a function of its values.
class Layer {
 public:
  Layer(models::Transformer& model, std::int64_t layer, const Heads& heads)
      : core_(model->block(layer).core()) {
    const auto& config = model->config();
    exact_.causality = config.causal ? Causality::kCausal : Causality::kBidirectional;
    if (config.attention.scale > 0) exact_.scale = config.attention.scale;
    heads_.v = heads.v.to(at::kFloat);
    if (heads.q.defined()) heads_.q = heads.q.to(at::kFloat), heads_.k = heads.k.to(at::kFloat);
  }

  bool has_queries() const { return heads_.q.defined(); }
  std::int64_t length() const { return heads_.v.size(2); }
  std::int64_t heads() const { return (has_queries() ? heads_.q : heads_.v).size(1); }

  // values [L, C] -> [H, L, C]
  Tensor mix(const Tensor& values) {
    Heads own = heads_;
    own.v = values.expand({1, heads_.v.size(1), values.size(0), values.size(1)});
    // Torch's fused exact attention wants values as wide as queries, and holds L x L weights else.
    const Tensor out =
        is_exact() ? exact_attention(own.q, own.k, own.v, exact_) : core_.forward(own, {});
    return out.squeeze(0);
  }

  Tensor exact_map(const MapSelection& selection) const {
    return exact_attention_map(heads_.q, heads_.k, exact_, selection).squeeze(0).cpu();
  }

 private:
  bool is_exact() { return dynamic_cast<models::ExactCore*>(&core_) != nullptr; }

  models::AttentionCore& core_;
  Heads heads_;
  ExactOptions exact_;
};

// Calls take(begin, [H, L, C]) for columns [begin, begin + C) of the one-hot map of `group`, int64
// [L]: which column a token belongs to.
template <class Take>
void each_block(Layer& layer, const Tensor& group, std::int64_t columns, Take take) {
  const auto row_numbers = std::max<std::int64_t>(1, layer.heads() * layer.length());
  const auto width = std::clamp<std::int64_t>(kBlock / row_numbers, 16, 1024);
  for (std::int64_t begin = 0; begin < columns; begin += width) {
    const auto count = std::min(width, columns - begin);
    const Tensor wanted = at::arange(begin, begin + count, group.options());
    take(begin, layer.mix(group.unsqueeze(1).eq(wanted).to(at::kFloat)));
  }
}

Tensor pooled_map(Layer& layer, std::int64_t pool, at::Device device) {
  const auto length = layer.length(), tiles = ceil_div(length, pool);
  const Tensor group = at::arange(length, at::kLong).to(device).floor_divide(pool);
  const Tensor counts =
      at::zeros({tiles}, at::TensorOptions(device)).index_add(0, group, at::ones({length}, device));
  Tensor map = at::empty({layer.heads(), tiles, tiles});
  each_block(layer, group, tiles, [&](std::int64_t begin, const Tensor& block) {
    const Tensor sums = at::zeros({layer.heads(), tiles, block.size(2)}, block.options());
    const Tensor means = sums.index_add(1, group, block) / counts.unsqueeze(1);
    map.narrow(2, begin, block.size(2)).copy_(means);
  });
  return map;
}

Tensor window_map(Layer& layer, const MapOptions& o, at::Device device) {
  const auto width = o.window_end - o.window_begin;
  const Tensor group = at::arange(layer.length(), at::kLong).to(device) - o.window_begin;
  Tensor map = at::empty({layer.heads(), width, width});
  each_block(layer, group, width, [&](std::int64_t begin, const Tensor& block) {
    map.narrow(2, begin, block.size(2)).copy_(block.narrow(1, o.window_begin, width));
  });
  return map;
}

// [K, L] x [H, L, K] -> [H, K, K]
Tensor kind_map(Layer& layer, const MapOptions& o, at::Device device) {
  const Tensor kinds = o.kinds.to(device);
  const Tensor rows = kinds.unsqueeze(1).eq(at::arange(o.num_kinds, kinds.options()));  // [L, K]
  Tensor map = at::empty({layer.heads(), o.num_kinds, o.num_kinds}, at::kDouble);
  each_block(layer, kinds, o.num_kinds, [&](std::int64_t begin, const Tensor& block) {
    map.narrow(2, begin, block.size(2))
        .copy_(at::matmul(rows.t().to(at::kDouble), block.to(at::kDouble)));
  });
  return map;
}

LayerMaps maps_of(Layer& layer, const MapOptions& o, std::int64_t number, at::Device device) {
  LayerMaps maps;
  maps.layer = number;
  const auto pool = tile_size(layer.length(), o.tiles);
  const bool windowed = o.window_end > o.window_begin;
  maps.tiles = pooled_map(layer, pool, device);
  if (windowed) maps.window = window_map(layer, o, device);
  if (o.kinds.defined()) maps.by_kind = kind_map(layer, o, device);
  if (!o.exact || !layer.has_queries()) return maps;
  MapSelection pooled, chosen;
  pooled.pool = pool;
  maps.exact_tiles = layer.exact_map(pooled);
  if (!windowed) return maps;
  chosen.rows = chosen.columns = at::arange(o.window_begin, o.window_end, at::kLong);
  maps.exact_window = layer.exact_map(chosen);
  return maps;
}

}  // namespace

std::int64_t tile_size(std::int64_t length, std::int64_t tiles) {
  return std::max<std::int64_t>(1, ceil_div(length, std::max<std::int64_t>(1, tiles)));
}

void map_attention(models::Transformer& model, const Tensor& tokens, const MapOptions& options,
                   const std::function<void(const LayerMaps& maps)>& take) {
  const at::NoGradGuard no_grad;
  if (options.layers.empty()) return;
  const auto device = model->parameters().front().device();
  const auto last = std::ranges::max(options.layers);
  // A reversible model has hidden states at its end alone.
  const auto depth = model->config().reversible ? model->config().layers : last + 1;
  model->hidden_after({tokens.to(device), {}}, depth, [&](std::int64_t number, const Heads& heads) {
    if (std::ranges::find(options.layers, number) == options.layers.end()) return;
    Layer layer(model, number, heads);
    take(maps_of(layer, options, number, device));
  });
}

Tensor uniform_tiles(std::int64_t length, std::int64_t tiles, bool causal) {
  const auto pool = tile_size(length, tiles);
  const auto count = ceil_div(length, pool);
  const Tensor begin = at::arange(count, at::kDouble) * pool;        // [T]
  const Tensor rows = at::arange(length, at::kDouble).unsqueeze(1);  // [L, 1]
  const Tensor seen = causal ? rows + 1 : at::full_like(rows, static_cast<double>(length));
  const Tensor weights = (seen - begin).clamp(0, static_cast<double>(pool)) / seen;  // [L, T]
  const Tensor group = at::arange(length, at::kLong).floor_divide(pool);
  const Tensor sizes = (static_cast<double>(length) - begin).clamp_max(static_cast<double>(pool));
  return at::zeros({count, count}, at::kDouble).index_add(0, group, weights) / sizes.unsqueeze(1);
}

std::vector<HeadScore> head_scores(const Tensor& tiles, std::int64_t length, bool causal) {
  const auto count = tiles.size(1);
  const auto pool = ceil_div(length, count);
  const Tensor rows = (static_cast<double>(length) - at::arange(count, at::kDouble) * pool)
                          .clamp_max(static_cast<double>(pool)) /
                      static_cast<double>(length);  // the share of each tile's rows
  const Tensor excess = (tiles.to(at::kDouble) - uniform_tiles(length, count, causal)) *
                        rows.unsqueeze(1);  // [H, T, T]
  const Tensor near = at::ones({count, count}, at::kDouble).triu(-1).tril(1);
  const Tensor diagonal = (excess * near).sum({1, 2});
  const Tensor vertical = excess.sum(1).abs().sum(1) / 2;
  std::vector<HeadScore> scores;
  for (std::int64_t h = 0; h < tiles.size(0); ++h) {
    scores.push_back({diagonal[h].item<double>(), vertical[h].item<double>()});
  }
  return scores;
}

}  // namespace performer::infer
