#pragma once

#include <string>
#include <vector>

#include "performer/pretrained/description.h"
#include "performer/pretrained/hf_config.h"

namespace performer::pretrained {

/// What config.json leaves open.
struct Facts {
  bool frequencies = false;  // the file has rotary frequencies of its own
};

/// The model that config.json describes. kBadInput, by name and with what would be taken, for what
/// models::Transformer cannot express exactly.
Description describe(const HfConfig& config, const Facts& facts);

// One function an architecture, each in a file of its own.
Description describe_bert(const HfConfig& config);
Description describe_esm(const HfConfig& config, const Facts& facts);
Description describe_gpt2(const HfConfig& config);
Description describe_llama(const HfConfig& config, const std::string& type);

/// The one architecture that config.json names, which must be among these: with an output layer, or
/// hidden states alone.
struct Architecture {
  std::string name;
  bool lm = false;
};
Architecture architecture_of(const HfConfig& config, const std::vector<std::string>& with_head,
                             const std::vector<std::string>& without);

/// Sizes that all have, under the keys that BERT, ESM and Llama share.
void read_sizes(const HfConfig& config, models::ModelConfig& model);

/// Of a dropout; what is no probability is refused.
double dropout_of(const HfConfig& config, std::string_view key, double fallback);

}  // namespace performer::pretrained
