#include "performer/models/model_cost.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "performer/core/size.h"
#include "performer/ops/feature_map.h"

namespace performer::models {
namespace {

Size linear(Size in, Size out, bool bias = true) { return in * out + (bias ? out : Size(0)); }

// Width of all heads together.
Size inner_width(const ModelConfig& c) { return Size(c.heads) * c.head_dim(); }
Size key_width(const ModelConfig& c) { return Size(c.key_heads()) * c.head_dim(); }

bool shares_queries(const std::string& kind) { return kind == "lsh"; }

Size norm_parameters(const ModelConfig& c) { return Size(c.norm == "layer" ? 2 : 1) * c.dim; }

Size layer_parameters(const ModelConfig& c, const std::string& kind) {
  const Size inner = Size(c.activation == "swiglu" ? 2 : 1) * c.ff_dim;
  const Size qkv = inner_width(c) + Size(shares_queries(kind) ? 1 : 2) * key_width(c);
  Size total = linear(c.dim, qkv, c.qkv_bias);
  total += linear(inner_width(c), c.dim, c.attention_output_bias);
  total += linear(c.dim, inner, c.ff_bias) + linear(c.ff_dim, c.dim, c.ff_bias);
  total += 2 * norm_parameters(c);
  if (kind == "linformer" && c.attention.linformer_projection == "learned") {
    total += 2 * Size(c.attention.linformer_k) * c.max_length;
  }
  return total;
}

Size head_parameters(const ModelConfig& c) {
  if (c.head == "none") return 0;
  if (c.head == "lm") {
    Size total = c.tied ? Size(0) : Size(c.vocabulary) * c.dim;
    if (c.head_transform) total += linear(c.dim, c.dim) + norm_parameters(c);
    if (c.logits_bias) total += c.vocabulary;
    return total;
  }
  if (c.head == "classify") return linear(c.dim, c.ff_dim) + linear(c.ff_dim, c.classes);
  const std::int64_t half = std::max<std::int64_t>(c.ff_dim / 2, 1);
  return linear(4 * Size(c.dim), c.ff_dim) + linear(c.ff_dim, half) + linear(half, c.classes);
}

// Tokens of a block of the near field.
std::int64_t near_block(const ModelConfig& c, const std::string& kind) {
  return kind == "favor" ? c.attention.near : 0;
}

// Features per head: M' rows, or without a projection the head's width, with a near field none.
std::int64_t num_features(const ModelConfig& c, const std::string& kind) {
  if (kind == "linear") return c.head_dim();
  if (c.attention.features == 0) return near_block(c, kind) > 0 ? 0 : c.head_dim();
  return num_map_features(parse_feature_map(c.attention.kernel), c.attention.features);
}

bool has_projection(const ModelConfig& c, const std::string& kind) {
  return kind == "favor" && c.attention.features > 0;
}

// Multiply-adds per token of one layer's mixing, all heads.
double mixing(const ModelConfig& c, const std::string& kind, double length) {
  const auto dim = static_cast<double>(inner_width(c).value());
  if (kind == "favor" || kind == "linear") {
    const auto features = static_cast<double>(num_features(c, kind));
    const double project = has_projection(c, kind)
                               ? 2 * dim * static_cast<double>(c.attention.features)
                               : 0;  // of query and key
    // A causal token sees the block before and, in the mean, half of its own; else three blocks.
    const double near = (c.causal ? 1.5 : 3) * static_cast<double>(near_block(c, kind));
    return project + 2 * dim * features + 2 * dim * near;  // state and read-out, exact weights
  }
  if (kind == "exact") return 2 * dim * length * (c.causal ? 0.5 : 1);
  if (kind == "linformer") return 4 * dim * static_cast<double>(c.attention.linformer_k);
  if (kind == "lsh") {
    const auto rounds = static_cast<double>(c.attention.lsh_hashes);
    return rounds * 4 * dim * static_cast<double>(c.attention.lsh_chunk);
  }
  return kind == "mean" ? dim : 0;
}

double layer_flops(const ModelConfig& c, const std::string& kind, double length) {
  const auto dim = static_cast<double>(c.dim), ff = static_cast<double>(c.ff_dim);
  const auto inner = static_cast<double>(inner_width(c).value());
  const auto keys = static_cast<double>(key_width(c).value());
  const double projections = dim * (2 * inner + (shares_queries(kind) ? 1 : 2) * keys);
  const double feed = (c.activation == "swiglu" ? 3 : 2) * dim * ff;
  return 2 * (projections + feed + mixing(c, kind, length));
}

// Elements per token that one layer keeps: the inputs of its GEMMs, norms and attention.
Size kept_elements(const ModelConfig& c) {
  const Size kept = c.activation == "relu" ? 1 : c.activation == "swiglu" ? 4 : 2;
  const Size dropped = c.dropout > 0 ? c.dim : 0;  // two masks of a byte or more in all
  // Two sums, two norms; q, mixed; k, v.
  return 4 * Size(c.dim) + 2 * inner_width(c) + 2 * key_width(c) + kept * c.ff_dim + dropped;
}

Size activation_elements(const ModelConfig& c) {
  const Size one = kept_elements(c);
  if (c.reversible) return 3 * Size(c.dim) + one;
  if (c.checkpointing) return Size(c.layers) * c.dim + one;
  return c.layers * one + 2 * Size(c.dim);
}

Size layer_state_bytes(const ModelConfig& c, const std::string& kind, const CostShape& s) {
  if (kind == "favor" || kind == "linear") {
    const Size near = near_block(c, kind);
    const Size sums = Size(c.key_heads()) * num_features(c, kind) * (c.head_dim() + 2) * 4;
    const Size kept = Size(c.key_heads()) * 2 * near * (2 * Size(c.head_dim()) + 1) * 4;
    return Size(s.batch) * (sums + kept + (near.value() > 0 ? 8 : 0)) + 8;
  }
  if (kind == "exact") return 2 * Size(s.batch) * s.length * key_width(c) * s.bytes_per_element;
  return kind == "mean" ? Size(s.batch) * inner_width(c) * 4 : 0;
}

}  // namespace

ModelCost estimate(const ModelConfig& c, const CostShape& shape) {
  ModelCost cost;
  const auto length = static_cast<double>(shape.length);
  Size parameters = Size(c.vocabulary) * c.dim + head_parameters(c), states;
  if (c.positions == "learned") parameters += Size(c.max_length) * c.dim;
  parameters += Size(c.token_types) * c.dim;
  if (c.embedding_norm) parameters += norm_parameters(c);
  if (c.norm_position == "pre") parameters += norm_parameters(c);
  for (std::int64_t layer = 0; layer < c.layers; ++layer) {
    const std::string& kind = c.kind_of(layer);
    parameters += layer_parameters(c, kind);
    cost.flops_per_token += layer_flops(c, kind, length);
    if (c.causal) states += layer_state_bytes(c, kind, shape);
  }
  if (c.head == "lm") {
    cost.flops_per_token += 2 * static_cast<double>(c.dim) * static_cast<double>(c.vocabulary);
  }
  Size kept = activation_elements(c);
  if (c.head == "lm") kept += c.vocabulary;
  const Size activations = Size(shape.batch) * shape.length * kept * shape.bytes_per_element;
  cost.parameters = parameters.value();
  cost.state_bytes = states.value();
  cost.activation_bytes = activations.value();
  return cost;
}

ModelCost estimate(const ModelConfig& config, std::int64_t batch, std::int64_t length,
                   std::int64_t bytes_per_element) {
  return estimate(config, CostShape{batch, length, bytes_per_element});
}

std::int64_t break_even_length(const ModelConfig& config) {
  const double per_token = mixing(config, "exact", 1.0);
  return static_cast<std::int64_t>(std::ceil(mixing(config, "favor", 1.0) / per_token));
}

}  // namespace performer::models
