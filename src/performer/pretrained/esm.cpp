// ESM-2: norms before each branch, rotary positions whose frequencies are stored, embeddings scaled
// by the share of masked tokens.
#include <fmt/format.h>

#include "performer/pretrained/describe.h"

namespace performer::pretrained {
namespace {

constexpr const char* kFrequencies = "rotary_embeddings.inv_freq";

models::ModelConfig esm_model(const HfConfig& config, bool lm) {
  models::ModelConfig model;
  read_sizes(config, model);
  model.max_length = config.integer_or("max_position_embeddings", 1026, 1, models::kMaxWidth);
  model.causal = false;
  model.norm_eps = config.number_or("layer_norm_eps", 1e-12);
  model.embedding_norm = config.flag_or("emb_layer_norm_before", false);
  model.positions = "rotary";
  model.rotary_base = config.number_or("rope_theta", 10000);
  model.dropout = dropout_of(config, "hidden_dropout_prob", 0.1);
  if (config.flag_or("token_dropout", false)) {
    model.token_dropout = config.integer("mask_token_id", 0, model.vocabulary - 1);
  }
  model.tied = config.flag_or("tie_word_embeddings", true);
  model.head = lm ? "lm" : "none";
  model.head_transform = model.logits_bias = lm;
  return model;
}

void add_esm_layer(PlaceList& places, const models::ModelConfig& m, std::int64_t layer) {
  const auto theirs = fmt::format("encoder.layer.{}.", layer);
  const auto ours = fmt::format("layers.{}.", layer);
  const PlaceList::Shape square{m.dim, m.dim};
  const auto self = theirs + "attention.self.", qkv = ours + "attention.qkv";
  places.linear(self + "query", qkv, square, true, 0, Layout::kRotaryRows);
  places.linear(self + "key", qkv, square, true, m.dim, Layout::kRotaryRows);
  places.linear(self + "value", qkv, square, true, 2 * m.dim);
  places.linear(theirs + "attention.output.dense", ours + "attention.output", square, true);
  places.layer_norm(theirs + "attention.LayerNorm", ours + "attention_norm", m.dim);
  places.linear(theirs + "intermediate.dense", ours + "feed_forward.input", {m.ff_dim, m.dim},
                true);
  places.linear(theirs + "output.dense", ours + "feed_forward.output", {m.dim, m.ff_dim}, true);
  places.layer_norm(theirs + "LayerNorm", ours + "feed_forward_norm", m.dim);
}

void add_esm_head(Description& d, PlaceList& places) {
  const auto& m = d.model;
  places.linear("lm_head.dense", "output.transform.dense", {m.dim, m.dim}, true);
  places.layer_norm("lm_head.layer_norm", "output.transform.norm", m.dim);
  places.add({"lm_head.bias", "output.bias", {m.vocabulary}});
  if (m.tied) {
    d.other_names["lm_head.decoder.weight"] = "embeddings.word_embeddings.weight";
  } else {
    places.add({"lm_head.decoder.weight", "output.weight", {m.vocabulary, m.dim}});
  }
}

// Files have them once, or once a layer; transformers writes a star for the layer.
void add_frequencies(Description& d, PlaceList& places) {
  const auto& m = d.model;
  d.model.rotary_frequencies = "stored";
  places.add({kFrequencies, "rotary.frequencies", {m.dim / m.heads / 2}});
  const auto of_layer = [](const std::string& layer) {
    return fmt::format("encoder.layer.{}.attention.self.{}", layer, kFrequencies);
  };
  d.other_names[of_layer("*")] = kFrequencies;
  for (std::int64_t i = 0; i < m.layers; ++i)
    d.other_names[of_layer(std::to_string(i))] = kFrequencies;
}

}  // namespace

Description describe_esm(const HfConfig& config, const Facts& facts) {
  const auto [name, lm] = architecture_of(config, {"EsmForMaskedLM"}, {"EsmModel"});
  config.expect_flag("is_decoder", false);
  config.expect_flag("is_folding_model", false);
  config.word("position_embedding_type", "absolute", {{"rotary", ""}});
  Description d;
  d.architecture = name;
  d.model = esm_model(config, lm);
  d.prefix = "esm.";
  d.bare_prefix = "lm_head.";
  d.base = !lm;
  d.ignored_endings = {"embeddings.position_ids"};
  d.kept = {"contact_head.regression.weight", "contact_head.regression.bias", "pooler.dense.weight",
            "pooler.dense.bias"};
  // Of rotary models of older releases, which never used them.
  d.ignored_endings.emplace_back("embeddings.position_embeddings.weight");
  const auto& m = d.model;
  PlaceList places(d);
  places.add({"embeddings.word_embeddings.weight", "embedding.weight", {m.vocabulary, m.dim}});
  if (m.embedding_norm) places.layer_norm("embeddings.layer_norm", "embedding.norm", m.dim);
  for (std::int64_t i = 0; i < m.layers; ++i) add_esm_layer(places, m, i);
  places.layer_norm("encoder.emb_layer_norm_after", "norm", m.dim);
  if (facts.frequencies) add_frequencies(d, places);
  if (lm) add_esm_head(d, places);
  return d;
}

}  // namespace performer::pretrained
