#pragma once

#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "performer/core/config.h"

namespace performer::models {

// Far beyond any model there is; their products are limited by check().
inline constexpr std::int64_t kMaxLayers = 1 << 14;
inline constexpr std::int64_t kMaxWidth = 1 << 20;
inline constexpr std::int64_t kMaxFeatures = 1 << 16;
inline constexpr std::int64_t kMostNear = 1 << 12;
inline constexpr std::int64_t kMaxVocabulary = 1 << 28;
inline constexpr std::int64_t kMaxLength = std::int64_t{1} << 31;
inline constexpr std::int64_t kMaxSteps = std::int64_t{1} << 40;

/// The attention of a layer. What a kind does not name, it ignores.
struct AttentionConfig {
  std::string kind = "favor";
  std::string kernel = "positive";
  std::int64_t features = 256;
  std::int64_t near = 0;
  std::string projection = "orthogonal";
  std::string projection_norm = "chi";
  std::string rounding = "bf16";
  std::int64_t redraw_interval = 0;
  bool per_head = true;
  bool renormalize = true;
  double eps = -1;
  double scale = 0;
  std::int64_t seed = 0;
  std::int64_t linformer_k = 600;
  std::string linformer_projection = "learned";
  double linformer_delta = 1e-6;
  std::int64_t lsh_hashes = 2;
  std::int64_t lsh_chunk = 64;
  std::int64_t lsh_buckets = 0;
};

template <class Config, class Visitor>
requires std::is_same_v<std::remove_const_t<Config>, AttentionConfig>
void visit_fields(Config& c, Visitor&& field) {
  field(
      "kind", c.kind, "Attention of all layers (one by one: layer_kinds).",
      {"favor", "exact", "linear", "linformer", "lsh", "identity", "mean"},
      Hints{{"performer", "favor"}, {"softmax", "exact"}, {"full", "exact"}, {"reformer", "lsh"}});
  field("kernel", c.kernel,
        "favor: feature map. Performer-ReLU is relu with features = 0 (no projection).",
        {"positive", "loglinear", "hyperbolic", "trigonometric", "relu", "exp", "sigmoid", "abs",
         "gelu", "cos", "tanh", "identity", "square", "elu1", "sgn"},
        Hints{{"softmax", "positive"}, {"relu_kernel", "relu"}, {"elu", "elu1"}});
  field("features", c.features,
        "favor: rows of the random projection; 0: none, for generalised maps, or near alone.",
        Range{0, kMaxFeatures}, Aliases{"num_features", "nb_features"});
  field(
      "near", c.near,
      "favor: tokens of a block; own and neighbouring blocks are attended to exactly, the rest by "
      "features. 0: features for all.",
      Range{0, kMostNear});
  field("projection", c.projection,
        "favor: how the rows depend on each other; fitted: features are numbers of the model.",
        {"iid", "orthogonal", "simplex", "hadamard", "givens", "fitted"});
  field("projection_norm", c.projection_norm, "favor: norms of the rows (sqrt_d: SMREG).",
        {"chi", "sqrt_d"});
  field("rounding", c.rounding,
        "favor: entries of the projection become bfloat16 numbers; none: they stay float32.",
        {"bf16", "none"});
  field("redraw_interval", c.redraw_interval,
        "Steps between draws of new random projections; 0: never.", Range{0, kMaxSteps});
  field("per_head", c.per_head, "favor: one projection per head, or one for all.");
  field("renormalize", c.renormalize, "favor, linear: divide by the sum of the weights.");
  field("eps", c.eps, "favor: added to generalised features; negative: the map's default.");
  field("scale", c.scale, "Of q.k; 0: 1/sqrt(head width); generalised feature maps and lsh 1.");
  field("seed", c.seed, "Of random projections and hashes.");
  field("linformer_k", c.linformer_k, "linformer: length of the compressed keys and values.",
        Range{1, kMaxWidth});
  field("linformer_projection", c.linformer_projection,
        "linformer: projections along the length; random ones follow redraw_interval.",
        {"learned", "random"});
  field("linformer_delta", c.linformer_delta,
        "linformer, random: values are multiplied by exp(-delta).");
  field("lsh_hashes", c.lsh_hashes, "lsh: rounds of hashing.", Range{1, 1 << 10});
  field("lsh_chunk", c.lsh_chunk, "lsh: tokens of a bucket that are attended to at once.",
        Range{1, kMaxWidth});
  field("lsh_buckets", c.lsh_buckets,
        "lsh: buckets of a round, even; 0: length / (2 lsh_chunk), from 2 to 128.",
        Range{0, kMaxWidth});
}

/// A Transformer: sizes, form and the attention of its layers.
struct ModelConfig {
  std::int64_t vocabulary = 0;
  std::int64_t max_length = 1024;
  std::int64_t layers = 6;
  std::int64_t dim = 512;
  std::int64_t heads = 8;
  std::int64_t ff_dim = 2048;
  std::int64_t kv_heads = 0;
  std::int64_t head_width = 0;
  bool causal = true;
  std::string norm = "layer";
  std::string norm_position = "pre";
  double norm_eps = 1e-5;
  bool embedding_norm = false;
  std::string activation = "gelu";
  bool qkv_bias = true;
  bool attention_output_bias = true;
  bool ff_bias = true;
  std::string positions = "learned";
  double rotary_base = 10000;
  std::string rotary_frequencies = "base";
  std::int64_t token_types = 0;
  std::int64_t token_dropout = -1;
  bool tied = true;
  bool head_transform = false;
  bool logits_bias = false;
  double dropout = 0.1;
  bool checkpointing = false;
  bool reversible = false;
  std::string head = "lm";
  std::int64_t classes = 0;
  AttentionConfig attention;
  std::vector<std::string> layer_kinds;

  std::int64_t head_dim() const { return head_width > 0 ? head_width : dim / heads; }
  std::int64_t key_heads() const { return kv_heads > 0 ? kv_heads : heads; }
  /// The kind of attention of a layer.
  const std::string& kind_of(std::int64_t layer) const;
};

template <class Config, class Visitor>
requires std::is_same_v<std::remove_const_t<Config>, ModelConfig>
void visit_fields(Config& c, Visitor&& field) {
  field("vocabulary", c.vocabulary, "Tokens; 0: what the data has.", Range{0, kMaxVocabulary},
        Aliases{"vocab_size"});
  field("max_length", c.max_length, "Tokens of the longest sequence.", Range{1, kMaxLength});
  field("layers", c.layers, "Blocks of attention and feed-forward.", Range{1, kMaxLayers},
        Aliases{"num_layers", "n_layers", "depth"});
  field("dim", c.dim, "Width of the residual stream.", Range{1, kMaxWidth},
        Aliases{"width", "d_model", "hidden_size"});
  field("heads", c.heads, "Attention heads; must divide dim unless head_width is given.",
        Range{1, kMaxWidth}, Aliases{"num_heads", "n_heads"});
  field("ff_dim", c.ff_dim, "Width of the feed-forward layers.", Range{1, kMaxWidth},
        Aliases{"d_ff", "ffn_dim"});
  field("kv_heads", c.kv_heads,
        "Heads of keys and values, each of which serves heads / kv_heads queries; 0: one per head.",
        Range{0, kMaxWidth}, Aliases{"num_key_value_heads"});
  field("head_width", c.head_width, "Width of a head; 0: dim / heads.", Range{0, kMaxWidth},
        Aliases{"head_dim"});
  field("causal", c.causal, "Tokens see only what is before them.");
  field("norm", c.norm, "Normalisation.", {"layer", "rms"});
  field("norm_position", c.norm_position, "Before each branch or after each sum.", {"pre", "post"});
  field("norm_eps", c.norm_eps, "Added to the variance that a norm divides by.");
  field("embedding_norm", c.embedding_norm, "One more norm, after the embedding.");
  field("activation", c.activation, "Of the feed-forward layers (gelu: by erf).",
        {"relu", "gelu", "gelu_tanh", "swiglu"},
        Hints{{"gelu_new", "gelu_tanh"}, {"silu", "swiglu"}});
  field("qkv_bias", c.qkv_bias, "Queries, keys and values have biases.");
  field("attention_output_bias", c.attention_output_bias, "The output of attention has a bias.");
  field("ff_bias", c.ff_bias, "The feed-forward layers have biases.");
  field("positions", c.positions, "How tokens know their place.",
        {"learned", "sinusoidal", "rotary", "none"},
        Hints{{"rope", "rotary"}, {"sine", "sinusoidal"}, {"learnt", "learned"}});
  field("rotary_base", c.rotary_base, "rotary: pair i turns by base^(-2i / head width) a token.",
        Aliases{"rope_theta"});
  field("rotary_frequencies", c.rotary_frequencies,
        "rotary: computed from the base, or kept beside the weights.", {"base", "stored"});
  field("token_types", c.token_types,
        "Rows of a table of segments, the first of which is added to every token; 0: none.",
        Range{0, kMaxWidth});
  field("token_dropout", c.token_dropout,
        "Token whose embeddings become 0, the others being scaled to make up for it, as in ESM-2 "
        "for <mask>; -1: none.",
        Range{-1, kMaxVocabulary});
  field("tied", c.tied, "The output layer is the embedding.");
  field("head_transform", c.head_transform,
        "lm: a linear layer, the activation and a norm before the output layer.");
  field("logits_bias", c.logits_bias, "lm: the output layer has a bias.");
  field("dropout", c.dropout, "Probability of dropping an activation.");
  field("checkpointing", c.checkpointing, "Recompute blocks in the backward pass: less memory.");
  field("reversible", c.reversible,
        "Two streams whose inputs are recomputed: memory independent of depth.");
  field("head", c.head, "What the model answers (none: hidden states, of converted models).",
        {"lm", "classify", "match", "none"});
  field("classes", c.classes, "Of classify and match; 0: what the data has.",
        Range{0, kMaxVocabulary}, Aliases{"num_classes"});
  field("layer_kinds", c.layer_kinds, "Attention kind of each layer; empty: attention.kind.");
  field("attention", c.attention, "Attention of the layers.");
}

/// Throws Error (kUsage), which names the dotted key, unless a model can be made of `config`.
void check(const ModelConfig& config);

}  // namespace performer::models
