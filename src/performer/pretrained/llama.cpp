// Llama and what is built like it (Mistral, Qwen2): causal, RMSNorm, rotary positions, grouped heads
// of keys, SwiGLU.
#include <fmt/format.h>

#include <algorithm>

#include "performer/pretrained/describe.h"

namespace performer::pretrained {
namespace {

// The base of rotary positions, under its new name or its old one. Scaled positions are refused.
double rotary_base(const HfConfig& config) {
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    if (!config.has(key)) continue;
    const auto rope = config.section(key);
    rope.word(rope.has("rope_type") ? "rope_type" : "type", "default", {{"default", ""}});
    if (rope.number_or("partial_rotary_factor", 1) != 1) rope.refuse("partial_rotary_factor", "1");
    if (rope.has("rope_theta")) return rope.number_or("rope_theta", 10000);
  }
  if (config.number_or("partial_rotary_factor", 1) != 1) {
    config.refuse("partial_rotary_factor", "1");
  }
  return config.number_or("rope_theta", 10000);
}

// Every token sees all before it.
void check_windows(const HfConfig& config, const std::string& type) {
  const bool used = type != "qwen2" || config.flag_or("use_sliding_window", false);
  if (used) config.expect_absent("sliding_window");
  if (!config.has("layer_types")) return;
  const auto kinds = config.at("layer_types").strings();
  if (std::any_of(kinds.begin(), kinds.end(),
                  [](const auto& k) { return k != "full_attention"; })) {
    config.refuse("layer_types", "full_attention");
  }
}

models::ModelConfig llama_model(const HfConfig& config, const std::string& type, bool lm) {
  models::ModelConfig model;
  read_sizes(config, model);
  model.max_length = config.integer_or("max_position_embeddings", 2048, 1, models::kMaxLength);
  const auto key_heads =
      config.integer_or("num_key_value_heads", model.heads, 1, models::kMaxWidth);
  model.kv_heads = key_heads == model.heads ? 0 : key_heads;
  model.head_width = config.integer_or("head_dim", 0, 1, models::kMaxWidth);
  model.norm = "rms";
  model.norm_eps = config.number_or("rms_norm_eps", 1e-6);
  config.word("hidden_act", "silu", {{"silu", ""}, {"swish", ""}});
  model.activation = "swiglu";
  model.positions = "rotary";
  model.rotary_base = rotary_base(config);
  const bool qwen = type == "qwen2";
  model.qkv_bias = qwen || config.flag_or("attention_bias", false);
  model.attention_output_bias = !qwen && config.flag_or("attention_bias", false);
  model.ff_bias = config.flag_or("mlp_bias", false);
  model.dropout = 0;
  model.tied = config.flag_or("tie_word_embeddings", false);
  model.head = lm ? "lm" : "none";
  return model;
}

void add_llama_layer(PlaceList& places, const models::ModelConfig& m, std::int64_t layer) {
  const auto theirs = fmt::format("layers.{}.", layer);
  const auto ours = fmt::format("layers.{}.", layer);
  const std::int64_t queries = m.heads * m.head_dim(), keys = m.key_heads() * m.head_dim();
  const auto self = theirs + "self_attn.", qkv = ours + "attention.qkv";
  places.linear(self + "q_proj", qkv, {queries, m.dim}, m.qkv_bias, 0, Layout::kRotaryRows);
  places.linear(self + "k_proj", qkv, {keys, m.dim}, m.qkv_bias, queries, Layout::kRotaryRows);
  places.linear(self + "v_proj", qkv, {keys, m.dim}, m.qkv_bias, queries + keys);
  places.linear(self + "o_proj", ours + "attention.output", {m.dim, queries},
                m.attention_output_bias);
  const auto input = ours + "feed_forward.input";
  places.linear(theirs + "mlp.gate_proj", input, {m.ff_dim, m.dim}, m.ff_bias);
  places.linear(theirs + "mlp.up_proj", input, {m.ff_dim, m.dim}, m.ff_bias, m.ff_dim);
  places.linear(theirs + "mlp.down_proj", ours + "feed_forward.output", {m.dim, m.ff_dim},
                m.ff_bias);
  places.add({theirs + "input_layernorm.weight", ours + "attention_norm.weight", {m.dim}});
  places.add(
      {theirs + "post_attention_layernorm.weight", ours + "feed_forward_norm.weight", {m.dim}});
}

std::string family_of(const std::string& type) {
  return type == "llama" ? "Llama" : type == "mistral" ? "Mistral" : "Qwen2";
}

}  // namespace

Description describe_llama(const HfConfig& config, const std::string& type) {
  const auto family = family_of(type);
  const auto [name, lm] = architecture_of(config, {family + "ForCausalLM"}, {family + "Model"});
  check_windows(config, type);
  Description d;
  d.architecture = name;
  d.model = llama_model(config, type, lm);
  d.prefix = "model.";
  d.bare_prefix = "lm_head.";
  d.base = !lm;
  d.ignored_endings = {".rotary_emb.inv_freq"};  // computed from the base, as here
  const auto& m = d.model;
  PlaceList places(d);
  places.add({"embed_tokens.weight", "embedding.weight", {m.vocabulary, m.dim}});
  for (std::int64_t i = 0; i < m.layers; ++i) add_llama_layer(places, m, i);
  places.add({"norm.weight", "norm.weight", {m.dim}});
  if (lm && m.tied) d.other_names["lm_head.weight"] = "embed_tokens.weight";
  if (lm && !m.tied) places.add({"lm_head.weight", "output.weight", {m.vocabulary, m.dim}});
  return d;
}

}  // namespace performer::pretrained
