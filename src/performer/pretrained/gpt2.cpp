// GPT-2: causal, norms before each branch, learned positions, weights stored as [in, out].
#include <fmt/format.h>

#include "performer/pretrained/describe.h"

namespace performer::pretrained {
namespace {

models::ModelConfig gpt2_model(const HfConfig& config, bool lm) {
  models::ModelConfig model;
  model.vocabulary = config.integer("vocab_size", 1, models::kMaxVocabulary);
  model.dim = config.integer("n_embd", 1, models::kMaxWidth);
  model.layers = config.integer("n_layer", 1, models::kMaxLayers);
  model.heads = config.integer("n_head", 1, models::kMaxWidth);
  model.ff_dim = config.integer_or("n_inner", 4 * model.dim, 1, models::kMaxWidth);
  model.max_length = config.integer("n_positions", 1, models::kMaxWidth);
  model.norm_eps = config.number_or("layer_norm_epsilon", 1e-5);
  model.activation = config.word("activation_function", "gelu_new",
                                 {{"gelu_new", "gelu_tanh"},
                                  {"gelu_pytorch_tanh", "gelu_tanh"},
                                  {"gelu", "gelu"},
                                  {"relu", "relu"}});
  model.dropout = dropout_of(config, "resid_pdrop", 0.1);
  if (!config.flag_or("scale_attn_weights", true)) model.attention.scale = 1;
  model.tied = config.flag_or("tie_word_embeddings", true);
  model.head = lm ? "lm" : "none";
  return model;
}

void add_gpt2_layer(PlaceList& places, const models::ModelConfig& m, std::int64_t layer) {
  const auto theirs = fmt::format("h.{}.", layer);
  const auto ours = fmt::format("layers.{}.", layer);
  const auto conv = [&](const char* name, const char* parameter, std::int64_t in,
                        std::int64_t out) {
    places.linear(theirs + name, ours + parameter, {in, out}, true, 0, Layout::kTransposed);
  };
  places.layer_norm(theirs + "ln_1", ours + "attention_norm", m.dim);
  conv("attn.c_attn", "attention.qkv", m.dim, 3 * m.dim);
  conv("attn.c_proj", "attention.output", m.dim, m.dim);
  places.layer_norm(theirs + "ln_2", ours + "feed_forward_norm", m.dim);
  conv("mlp.c_fc", "feed_forward.input", m.dim, m.ff_dim);
  conv("mlp.c_proj", "feed_forward.output", m.ff_dim, m.dim);
}

}  // namespace

Description describe_gpt2(const HfConfig& config) {
  const auto [name, lm] = architecture_of(config, {"GPT2LMHeadModel"}, {"GPT2Model"});
  config.expect_flag("scale_attn_by_inverse_layer_idx", false);
  Description d;
  d.architecture = name;
  d.model = gpt2_model(config, lm);
  d.prefix = "transformer.";
  d.bare_prefix = "lm_head.";
  d.base = !lm;
  d.ignored_endings = {".attn.bias", ".attn.masked_bias"};  // the causal mask
  const auto& m = d.model;
  PlaceList places(d);
  places.add({"wte.weight", "embedding.weight", {m.vocabulary, m.dim}});
  places.add({"wpe.weight", "embedding.positions", {m.max_length, m.dim}});
  for (std::int64_t i = 0; i < m.layers; ++i) add_gpt2_layer(places, m, i);
  places.layer_norm("ln_f", "norm", m.dim);
  if (lm && m.tied) d.other_names["lm_head.weight"] = "wte.weight";
  if (lm && !m.tied) places.add({"lm_head.weight", "output.weight", {m.vocabulary, m.dim}});
  return d;
}

}  // namespace performer::pretrained
