#include "performer/models/model_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>

#include "performer/core/error.h"
#include "performer/models/attention_kind.h"
#include "performer/ops/feature_map.h"

namespace performer::models {
namespace {

void at_least(std::string_view key, std::int64_t value, std::int64_t least) {
  if (value < least) {
    fail(ExitCode::kUsage, "model.{}: must be at least {}, got {}", key, least, value);
  }
}

void one_of(std::string_view key, const std::string& value, const std::vector<std::string>& known) {
  if (std::find(known.begin(), known.end(), value) == known.end()) {
    fail(ExitCode::kUsage, "model.{}: unknown value \"{}\"; known: {}", key, value,
         fmt::join(known, ", "));
  }
}

bool uses(const ModelConfig& c, std::string_view kind) {
  for (std::int64_t layer = 0; layer < c.layers; ++layer) {
    if (c.kind_of(layer) == kind) return true;
  }
  return false;
}

void check_favor(const AttentionConfig& a) {
  std::vector<std::string> maps;
  maps.reserve(all_feature_maps().size());
  for (const auto map : all_feature_maps()) maps.emplace_back(to_string(map));
  one_of("attention.kernel", a.kernel, maps);
  one_of("attention.projection", a.projection,
         {"iid", "orthogonal", "simplex", "hadamard", "givens"});
  one_of("attention.projection_norm", a.projection_norm, {"chi", "sqrt_d"});
  at_least("attention.features", a.features, 0);
  if (!is_softmax_map(parse_feature_map(a.kernel))) return;
  if (a.features == 0) {
    fail(ExitCode::kUsage,
         "model.attention.features: the kernel {} needs a projection; set at least 1, or a "
         "generalised kernel such as relu",
         a.kernel);
  }
  if (a.eps >= 0) {
    fail(ExitCode::kUsage,
         "model.attention.eps: the kernel {} has no eps, got {}; leave it negative", a.kernel,
         a.eps);
  }
}

void check_linformer(const ModelConfig& c) {
  one_of("attention.linformer_projection", c.attention.linformer_projection, {"learned", "random"});
  at_least("attention.linformer_k", c.attention.linformer_k, 1);
  if (c.attention.linformer_k > c.max_length) {
    fail(ExitCode::kUsage,
         "model.attention.linformer_k: must not exceed model.max_length ({}), got {}", c.max_length,
         c.attention.linformer_k);
  }
  if (c.causal) {
    fail(ExitCode::kUsage,
         "model.attention.kind: linformer mixes all positions; set model.causal = false");
  }
}

void check_lsh(const ModelConfig& c) {
  at_least("attention.lsh_hashes", c.attention.lsh_hashes, 1);
  at_least("attention.lsh_chunk", c.attention.lsh_chunk, 1);
  at_least("attention.lsh_buckets", c.attention.lsh_buckets, 0);
  if (c.attention.lsh_buckets % 2 != 0) {
    fail(ExitCode::kUsage, "model.attention.lsh_buckets: must be even, got {}",
         c.attention.lsh_buckets);
  }
}

void check_attention(const ModelConfig& c) {
  const AttentionConfig& a = c.attention;
  one_of("attention.kind", a.kind, attention_kinds());
  for (const auto& kind : c.layer_kinds) one_of("layer_kinds", kind, attention_kinds());
  if (!c.layer_kinds.empty() && static_cast<std::int64_t>(c.layer_kinds.size()) != c.layers) {
    fail(ExitCode::kUsage,
         "model.layer_kinds: needs one kind per layer (model.layers = {}) or none, got {}",
         c.layers, c.layer_kinds.size());
  }
  at_least("attention.redraw_interval", a.redraw_interval, 0);
  if (!(a.scale >= 0)) {
    fail(ExitCode::kUsage, "model.attention.scale: must not be negative, got {}", a.scale);
  }
  if (uses(c, "favor")) check_favor(a);
  if (uses(c, "linformer")) check_linformer(c);
  if (uses(c, "lsh")) check_lsh(c);
}

void check_sizes(const ModelConfig& c) {
  at_least("vocabulary", c.vocabulary, 1);
  at_least("max_length", c.max_length, 1);
  at_least("layers", c.layers, 1);
  at_least("dim", c.dim, 1);
  at_least("heads", c.heads, 1);
  at_least("ff_dim", c.ff_dim, 1);
  if (c.dim % c.heads != 0) {
    fail(ExitCode::kUsage, "model.heads: must divide model.dim ({}), got {}", c.dim, c.heads);
  }
  if (c.positions == "rotary" && c.head_dim() % 2 != 0) {
    fail(ExitCode::kUsage,
         "model.positions: rotary needs an even head width, model.dim / model.heads is {}",
         c.head_dim());
  }
  if (c.positions == "sinusoidal" && c.dim % 2 != 0) {
    fail(ExitCode::kUsage, "model.positions: sinusoidal needs an even model.dim, got {}", c.dim);
  }
  if (!(c.dropout >= 0 && c.dropout < 1)) {
    fail(ExitCode::kUsage, "model.dropout: must be in [0, 1), got {}", c.dropout);
  }
  if (c.head != "lm") at_least("classes", c.classes, 2);
}

void check_form(const ModelConfig& c) {
  one_of("norm", c.norm, {"layer", "rms"});
  one_of("norm_position", c.norm_position, {"pre", "post"});
  one_of("activation", c.activation, {"relu", "gelu", "swiglu"});
  one_of("positions", c.positions, {"learned", "sinusoidal", "rotary", "none"});
  one_of("head", c.head, {"lm", "classify", "match"});
  if (!c.reversible) return;
  if (c.norm_position != "pre") {
    fail(ExitCode::kUsage, "model.reversible: needs model.norm_position = \"pre\", got \"{}\"",
         c.norm_position);
  }
  if (c.checkpointing) {
    fail(ExitCode::kUsage,
         "model.reversible: stores no activations, so model.checkpointing must be false");
  }
}

}  // namespace

const std::string& ModelConfig::kind_of(std::int64_t layer) const {
  return layer_kinds.empty() ? attention.kind : layer_kinds.at(static_cast<std::size_t>(layer));
}

void check(const ModelConfig& config) {
  check_form(config);
  check_sizes(config);
  check_attention(config);
}

}  // namespace performer::models
