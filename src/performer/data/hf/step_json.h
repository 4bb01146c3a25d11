#pragma once

#include "performer/core/json.h"
#include "performer/data/hf/tokenizer.h"

/// The parts of tokenizer.json beside the model. Each refuses a type or a setting that it does not
/// know, by its name and with those that it knows.
namespace performer::data::hf {

Normalizer read_normalizer(const JsonView& json);
PreTokenizer read_pre_tokenizer(const JsonView& json);
Template read_template(const JsonView& json);
Decoder read_decoder(const JsonView& json);

}  // namespace performer::data::hf
