#include "performer/ops/backends/composed/dense_call.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "performer/ops/backends/composed/pow2.h"
#include "performer/ops/favor/state.h"

namespace performer::composed {
namespace {

constexpr std::int64_t kBlockElements = 1 << 21;  // features per block: 8 MiB in float32
constexpr std::int64_t kMinBlock = 64;
constexpr std::int64_t kMaxBlock = 4096;

// [M, D] or [heads, M, D] -> [heads, M, D]; the product with sqrt(scale) is rounded once.
Tensor prepare_projection(const Tensor& w, double scale, at::ScalarType dtype) {
  if (!w.defined()) return w;
  const Tensor scaled = (w.to(at::kDouble) * std::sqrt(scale)).to(dtype);
  return w.dim() == 2 ? scaled.unsqueeze(0) : scaled;
}

Tensor prepare_bias(const Tensor& b, at::ScalarType dtype) {
  if (!b.defined()) return b;
  return (b.dim() == 1 ? b.unsqueeze(0) : b).to(dtype).unsqueeze(1);
}

double constant_of(FeatureMap map, std::int64_t features) {
  if (features == 0) return 1.0;  // a near field alone
  const auto m = static_cast<double>(features);
  if (map == FeatureMap::kTrigonometric) return 2.0 / m;
  return map == FeatureMap::kPositive || map == FeatureMap::kHyperbolic ? 1.0 / m : 1.0;
}

}  // namespace

DenseCall::DenseCall(const FavorArgs& a) : args(a), dtype(a.accumulate()) {
  heads.query = a.q.size(1);
  heads.key = a.k.size(1);
  heads.state = a.state_heads().expect_int();
  num_features = a.num_features().expect_int();
  value_dim = a.v.size(3);
  map_constant = constant_of(a.map(), num_features);

  query.map = key.map = a.map();
  query.scale = key.scale = a.resolved_scale();
  query.eps = key.eps = a.resolved_eps();
  key.norm_term = is_softmax_map(a.map()) && a.map() != FeatureMap::kLoglinear;
  query.norm_term = key.norm_term && !a.renormalize && a.near == 0;  // NearPass has its own
  const Tensor w = prepare_projection(a.projection, query.scale, dtype);
  const Tensor w_k = prepare_projection(a.key_projection(), key.scale, dtype);
  if (w.defined()) {
    query.projection = heads.query_parameter(w);
    key.projection = heads.key_parameter(w_k);
  }
  const Tensor b_q = prepare_bias(a.bias_q, dtype);
  const Tensor b_k = prepare_bias(a.bias_k, dtype);
  if (b_q.defined()) query.bias = heads.query_parameter(b_q);
  if (b_k.defined()) key.bias = heads.key_parameter(b_k);
}

std::int64_t DenseCall::block_length() const {
  const auto per_token = std::max<std::int64_t>(1, args.q.size(0) * heads.query * num_features);
  return std::clamp(kBlockElements / per_token, kMinBlock, kMaxBlock);
}

FeatureBlock DenseCall::load_queries(Block block) const {
  const auto [start, length] = block;
  const Tensor q = args.q.narrow(2, start, length).to(dtype);
  return query.features(heads.split_queries(q), {}, {});
}

KeyBlock DenseCall::load_keys(Block tokens) const {
  const auto [start, length] = tokens;
  KeyBlock block;
  Tensor k = heads.expand_keys(args.k.narrow(2, start, length).to(dtype));  // [B, Hs, C, D]
  Tensor v = heads.expand_keys(args.v.narrow(2, start, length).to(dtype));
  if (args.key_mask.defined()) block.mask = args.key_mask.narrow(1, start, length).unsqueeze(1);
  if (args.key_bias.defined()) {
    const Tensor b = args.key_bias.dim() == 2 ? args.key_bias.unsqueeze(1) : args.key_bias;
    block.bias = heads.expand_keys(b.narrow(2, start, length).to(dtype));
    const Tensor finite = block.bias.ne(-std::numeric_limits<double>::infinity());
    block.mask = block.mask.defined() ? block.mask.logical_and(finite) : finite;
  }
  if (block.mask.defined()) {
    const Tensor removed = block.mask.logical_not();
    k = k.masked_fill(removed.unsqueeze(-1), 0);
    v = v.masked_fill(removed.unsqueeze(-1), 0);
    if (block.bias.defined()) block.bias = block.bias.masked_fill(removed, 0);
  }
  block.features = key.features(k, block.bias, block.mask);
  block.values = at::cat({v, at::ones_like(k.narrow(-1, 0, 1))}, -1);
  block.log2 = round_up_log2(block.features.bound());
  if (block.mask.defined()) {
    block.log2 = block.log2.masked_fill(block.mask.logical_not().unsqueeze(-1), kEmptyLog2Scale);
  }
  return block;
}

ScaledSum DenseCall::initial_sum() const {
  const auto options = args.q.options().dtype(dtype);
  if (!args.state_kv.defined()) {
    return empty_sum({args.q.size(0), heads.state, num_features, value_dim + 1}, options);
  }
  return {at::cat({args.state_kv, args.state_normalizer.unsqueeze(-1)}, -1),
          args.state_log2_scale.to(dtype)};
}

std::vector<Block> split_blocks(std::int64_t total, std::int64_t length) {
  std::vector<Block> blocks;
  for (std::int64_t start = 0; start < total; start += length) {
    blocks.push_back({start, std::min(length, total - start)});
  }
  return blocks;
}

ScaledSum sum_keys(const KeyBlock& keys) {
  Tensor log2 = keys.log2.amax(2);  // [B, Hs, 1|M']
  const Tensor phi = keys.features.scaled(-log2.unsqueeze(2));
  log2 = log2.expand({log2.size(0), log2.size(1), phi.size(-1)});
  return {at::matmul(phi.transpose(-1, -2), keys.values), log2};
}

}  // namespace performer::composed
