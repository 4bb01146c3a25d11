// BERT and MiniLM: norms after each sum, learned positions, two segments of which the first is
// always meant (a second sentence cannot be told apart: models::Transformer takes tokens alone).
#include <fmt/format.h>

#include "performer/pretrained/describe.h"

namespace performer::pretrained {
namespace {

models::ModelConfig bert_model(const HfConfig& config, bool lm) {
  models::ModelConfig model;
  read_sizes(config, model);
  model.max_length = config.integer("max_position_embeddings", 1, models::kMaxWidth);
  model.causal = false;
  model.norm_position = "post";
  model.norm_eps = config.number_or("layer_norm_eps", 1e-12);
  model.embedding_norm = true;
  model.token_types = config.integer_or("type_vocab_size", 2, 1, models::kMaxWidth);
  model.activation = config.word("hidden_act", "gelu",
                                 {{"gelu", "gelu"},
                                  {"gelu_new", "gelu_tanh"},
                                  {"gelu_pytorch_tanh", "gelu_tanh"},
                                  {"relu", "relu"}});
  model.dropout = dropout_of(config, "hidden_dropout_prob", 0.1);
  model.tied = config.flag_or("tie_word_embeddings", true);
  model.head = lm ? "lm" : "none";
  model.head_transform = model.logits_bias = lm;
  return model;
}

void add_bert_layer(PlaceList& places, const models::ModelConfig& m, std::int64_t layer) {
  const auto theirs = fmt::format("encoder.layer.{}.", layer);
  const auto ours = fmt::format("layers.{}.", layer);
  std::int64_t row = 0;
  for (const char* part : {"query", "key", "value"}) {
    places.linear(theirs + "attention.self." + part, ours + "attention.qkv", {m.dim, m.dim}, true,
                  row);
    row += m.dim;
  }
  places.linear(theirs + "attention.output.dense", ours + "attention.output", {m.dim, m.dim}, true);
  places.layer_norm(theirs + "attention.output.LayerNorm", ours + "attention_norm", m.dim);
  places.linear(theirs + "intermediate.dense", ours + "feed_forward.input", {m.ff_dim, m.dim},
                true);
  places.linear(theirs + "output.dense", ours + "feed_forward.output", {m.dim, m.ff_dim}, true);
  places.layer_norm(theirs + "output.LayerNorm", ours + "feed_forward_norm", m.dim);
}

void add_bert_head(Description& d, PlaceList& places) {
  const auto& m = d.model;
  places.linear("cls.predictions.transform.dense", "output.transform.dense", {m.dim, m.dim}, true);
  places.layer_norm("cls.predictions.transform.LayerNorm", "output.transform.norm", m.dim);
  if (m.tied) {
    places.add({"cls.predictions.bias", "output.bias", {m.vocabulary}});
    d.other_names["cls.predictions.decoder.bias"] = "cls.predictions.bias";
    d.other_names["cls.predictions.decoder.weight"] = "embeddings.word_embeddings.weight";
  } else {
    places.linear("cls.predictions.decoder", "output", {m.vocabulary, m.dim}, true);
    d.kept.emplace_back("cls.predictions.bias");  // transformers has it beside, without a use
  }
}

}  // namespace

Description describe_bert(const HfConfig& config) {
  const auto [name, lm] =
      architecture_of(config, {"BertForMaskedLM", "BertForPreTraining"}, {"BertModel"});
  config.expect_flag("is_decoder", false);
  config.word("position_embedding_type", "absolute", {{"absolute", ""}});
  Description d;
  d.architecture = name;
  d.model = bert_model(config, lm);
  d.prefix = "bert.";
  d.bare_prefix = "cls.";
  d.base = !lm;
  d.ignored_endings = {"embeddings.position_ids", "embeddings.token_type_ids"};
  d.kept = {"pooler.dense.weight", "pooler.dense.bias", "cls.seq_relationship.weight",
            "cls.seq_relationship.bias"};
  const auto& m = d.model;
  PlaceList places(d);
  places.add({"embeddings.word_embeddings.weight", "embedding.weight", {m.vocabulary, m.dim}});
  places.add(
      {"embeddings.position_embeddings.weight", "embedding.positions", {m.max_length, m.dim}});
  places.add(
      {"embeddings.token_type_embeddings.weight", "embedding.types", {m.token_types, m.dim}});
  places.layer_norm("embeddings.LayerNorm", "embedding.norm", m.dim);
  for (std::int64_t i = 0; i < m.layers; ++i) add_bert_layer(places, m, i);
  if (lm) add_bert_head(d, places);
  return d;
}

}  // namespace performer::pretrained
