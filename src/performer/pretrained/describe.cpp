#include "performer/pretrained/describe.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "performer/core/error.h"

namespace performer::pretrained {
namespace {

constexpr const char* kTypes = "bert, esm, gpt2, llama, mistral, qwen2";

// What changes the arithmetic of any model, whatever its architecture.
void check_common(const HfConfig& config) {
  config.expect_absent("quantization_config");
  config.expect_absent("auto_map");  // code of the folder's own
  config.expect_absent("pruned_heads");
  config.expect_flag("is_encoder_decoder", false);
  config.expect_flag("add_cross_attention", false);
}

}  // namespace

Architecture architecture_of(const HfConfig& config, const std::vector<std::string>& with_head,
                             const std::vector<std::string>& without) {
  std::vector<std::string> accepted = with_head;
  accepted.insert(accepted.end(), without.begin(), without.end());
  const auto list = fmt::format("{}", fmt::join(accepted, ", "));
  if (!config.has("architectures")) config.refuse("architectures", "one of " + list);
  const auto given = config.at("architectures").strings();
  const bool known = given.size() == 1 &&
                     std::find(accepted.begin(), accepted.end(), given.front()) != accepted.end();
  if (!known) config.refuse("architectures", "one of " + list);
  const bool lm = std::find(with_head.begin(), with_head.end(), given.front()) != with_head.end();
  return {given.front(), lm};
}

void read_sizes(const HfConfig& config, models::ModelConfig& model) {
  model.vocabulary = config.integer("vocab_size", 1, models::kMaxVocabulary);
  model.dim = config.integer("hidden_size", 1, models::kMaxWidth);
  model.layers = config.integer("num_hidden_layers", 1, models::kMaxLayers);
  model.heads = config.integer("num_attention_heads", 1, models::kMaxWidth);
  model.ff_dim = config.integer("intermediate_size", 1, models::kMaxWidth);
}

double dropout_of(const HfConfig& config, std::string_view key, double fallback) {
  const double p = config.number_or(key, fallback);
  if (!(p >= 0 && p < 1)) config.refuse(key, "a number from 0 to below 1");
  return p;
}

Description describe(const HfConfig& config, const Facts& facts) {
  check_common(config);
  const auto type = config.text_or("model_type", "");
  if (type == "bert") return describe_bert(config);
  if (type == "esm") return describe_esm(config, facts);
  if (type == "gpt2") return describe_gpt2(config);
  if (type == "llama" || type == "mistral" || type == "qwen2") return describe_llama(config, type);
  config.refuse("model_type", kTypes);
}

}  // namespace performer::pretrained
