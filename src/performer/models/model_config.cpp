#include "performer/models/model_config.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>

#include "performer/core/error.h"
#include "performer/models/attention_kind.h"
#include "performer/models/model_cost.h"
#include "performer/ops/feature_map.h"
#include "performer/ops/projection/projection.h"

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

// The operator's own limits, met before anything is made.
void check_projection_sizes(const ModelConfig& c) {
  ProjectionOptions options;
  if (c.attention.per_head) options.heads = c.key_heads();
  options.layer = c.layers - 1;
  try {
    check_projection("model.attention, where dim = model.dim / model.heads", c.attention.features,
                     c.head_dim(), options);
  } catch (const c10::Error& error) {
    fail(ExitCode::kUsage, "{}", error.what_without_backtrace());
  }
}

// Near weights are exp(q.k) itself, so what stands beside them must estimate exp(q.k) too.
void check_near(const AttentionConfig& a) {
  const auto map = parse_feature_map(a.kernel);
  if (!is_softmax_map(map)) {
    fail(ExitCode::kUsage,
         "model.attention.near: needs a kernel that estimates exp(q.k) (positive, hyperbolic, "
         "trigonometric), got {}; set model.attention.near = 0",
         a.kernel);
  }
  if (map == FeatureMap::kLoglinear && a.projection != "fitted") {
    fail(ExitCode::kUsage,
         "model.attention.near: the kernel loglinear has no norm terms, so its far weights would "
         "not be those of exp(q.k); set model.attention.kernel = \"positive\"");
  }
  if (a.features > 0 && a.projection_norm == "sqrt_d") {
    fail(ExitCode::kUsage,
         "model.attention.projection_norm: sqrt_d underestimates exp(q.k) (at width 64 and "
         "|x+y|^2 = 16 by half), which near weights beside it do not; set \"chi\", or "
         "model.attention.near = 0");
  }
}

// Fitted features are log-linear, one set for each head, and stay as they are.
void check_fitted(const AttentionConfig& a) {
  const auto refuse = [](const char* key, const char* value) {
    fail(ExitCode::kUsage,
         "model.attention.projection: \"fitted\" needs model.attention.{} = {}; convert sets both",
         key, value);
  };
  if (a.kernel != "loglinear") refuse("kernel", "\"loglinear\"");
  if (!a.per_head) refuse("per_head", "true");
  if (a.redraw_interval != 0) refuse("redraw_interval", "0");
}

void check_favor(const ModelConfig& c) {
  const AttentionConfig& a = c.attention;
  std::vector<std::string> maps;
  maps.reserve(all_feature_maps().size());
  for (const auto map : all_feature_maps()) maps.emplace_back(to_string(map));
  one_of("attention.kernel", a.kernel, maps);
  one_of("attention.projection", a.projection,
         {"iid", "orthogonal", "simplex", "hadamard", "givens", "fitted"});
  one_of("attention.projection_norm", a.projection_norm, {"chi", "sqrt_d"});
  one_of("attention.rounding", a.rounding, {"bf16", "none"});
  if (a.features > 0) check_projection_sizes(c);
  if (a.projection == "fitted") check_fitted(a);
  if (a.near > 0) check_near(a);
  if (!is_softmax_map(parse_feature_map(a.kernel))) return;
  if (a.features == 0 && a.near == 0) {
    fail(ExitCode::kUsage,
         "model.attention.features: the kernel {} needs a projection; set at least 1, a "
         "generalised kernel such as relu, or model.attention.near for local attention alone",
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
  if (c.attention.lsh_buckets % 2 != 0) {
    fail(ExitCode::kUsage, "model.attention.lsh_buckets: must be even, got {}",
         c.attention.lsh_buckets);
  }
}

void check_key_heads(const ModelConfig& c) {
  if (c.key_heads() == c.heads) return;
  for (const char* kind : {"linformer", "lsh", "identity", "mean"}) {
    if (!uses(c, kind)) continue;
    fail(ExitCode::kUsage,
         "model.kv_heads: attention of kind {} has as many keys as queries; set 0, or a kind of "
         "favor, exact or linear, got {}",
         kind, c.kv_heads);
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
  if (!(a.scale >= 0)) {
    fail(ExitCode::kUsage, "model.attention.scale: must not be negative, got {}", a.scale);
  }
  if (uses(c, "favor")) check_favor(c);
  if (uses(c, "linformer")) check_linformer(c);
  if (uses(c, "lsh")) check_lsh(c);
  check_key_heads(c);
}

void check_sizes(const ModelConfig& c) {
  at_least("vocabulary", c.vocabulary, 1);
  if (c.head_width == 0 && c.dim % c.heads != 0) {
    fail(ExitCode::kUsage, "model.heads: must divide model.dim ({}), got {}", c.dim, c.heads);
  }
  if (c.heads % c.key_heads() != 0) {
    fail(ExitCode::kUsage, "model.kv_heads: must divide model.heads ({}), got {}", c.heads,
         c.kv_heads);
  }
  if (c.positions == "rotary" && c.head_dim() % 2 != 0) {
    fail(ExitCode::kUsage, "model.positions: rotary needs an even head width, {} is {}",
         c.head_width > 0 ? "model.head_width" : "model.dim / model.heads", c.head_dim());
  }
  if (c.positions == "sinusoidal" && c.dim % 2 != 0) {
    fail(ExitCode::kUsage, "model.positions: sinusoidal needs an even model.dim, got {}", c.dim);
  }
  if (!(c.dropout >= 0 && c.dropout < 1)) {
    fail(ExitCode::kUsage, "model.dropout: must be in [0, 1), got {}", c.dropout);
  }
  if (c.head == "classify" || c.head == "match") at_least("classes", c.classes, 2);
}

void check_numbers(const ModelConfig& c) {
  if (!(c.norm_eps > 0 && c.norm_eps < 1)) {
    fail(ExitCode::kUsage, "model.norm_eps: must be above 0 and below 1, got {}", c.norm_eps);
  }
  if (!(c.rotary_base >= 1 && c.rotary_base <= 1e12)) {
    fail(ExitCode::kUsage, "model.rotary_base: must be from 1 to 1e12, got {}", c.rotary_base);
  }
}

// Which tokens were masked is a matter of the whole sequence.
void check_token_dropout(const ModelConfig& c) {
  if (c.token_dropout < 0) return;
  if (c.token_dropout >= c.vocabulary) {
    fail(ExitCode::kUsage, "model.token_dropout: must be below model.vocabulary ({}), got {}",
         c.vocabulary, c.token_dropout);
  }
  if (c.causal) {
    fail(ExitCode::kUsage, "model.token_dropout: needs model.causal = false, got {}",
         c.token_dropout);
  }
}

void check_head(const ModelConfig& c) {
  const auto refuse = [&](const char* key) {
    fail(ExitCode::kUsage, "model.{}: is a part of the head lm, this one is {}", key, c.head);
  };
  if (c.head != "lm" && c.head_transform) refuse("head_transform");
  if (c.head != "lm" && c.logits_bias) refuse("logits_bias");
  if (c.head_transform && c.activation == "swiglu") {
    fail(ExitCode::kUsage,
         "model.head_transform: needs an activation of one branch, got model.activation = "
         "\"swiglu\"");
  }
}

void check_form(const ModelConfig& c) {
  one_of("norm", c.norm, {"layer", "rms"});
  one_of("norm_position", c.norm_position, {"pre", "post"});
  one_of("activation", c.activation, {"relu", "gelu", "gelu_tanh", "swiglu"});
  one_of("positions", c.positions, {"learned", "sinusoidal", "rotary", "none"});
  one_of("rotary_frequencies", c.rotary_frequencies, {"base", "stored"});
  one_of("head", c.head, {"lm", "classify", "match", "none"});
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

// Sizes that are possible each may not be together.
void check_total(const ModelConfig& c) {
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  const std::int64_t parameters = estimate(c, {.batch = 1, .length = 1}).parameters;
  if (parameters <= kMost) return;
  fail(ExitCode::kUsage,
       "model: {} parameters, at most {} are possible; lower model.layers ({}), model.dim ({}), "
       "model.ff_dim ({}), model.vocabulary ({}) or model.max_length ({})",
       parameters == INT64_MAX ? std::string("more than 2^63") : std::to_string(parameters), kMost,
       c.layers, c.dim, c.ff_dim, c.vocabulary, c.max_length);
}

}  // namespace

const std::string& ModelConfig::kind_of(std::int64_t layer) const {
  return layer_kinds.empty() ? attention.kind : layer_kinds.at(static_cast<std::size_t>(layer));
}

void check(const ModelConfig& config) {
  auto copy = config;
  check_ranges(list_fields(copy), "model.");
  check_form(config);
  check_sizes(config);
  check_numbers(config);
  check_token_dropout(config);
  check_head(config);
  check_attention(config);
  check_total(config);
}

}  // namespace performer::models
