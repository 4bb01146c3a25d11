#include <nlohmann/json.hpp>

#include "performer/data/hf/json_fields.h"
#include "performer/data/hf/step_json.h"

namespace performer::data::hf {
namespace {

NormalizerStep read_bert(const JsonView& json) {
  const bool lower = flag_of(json, "lowercase", true);
  return BertNormalizer{.clean_text = flag_of(json, "clean_text", true),
                        .handle_chinese = flag_of(json, "handle_chinese_chars", true),
                        .strip_accents = flag_of(json, "strip_accents", lower),
                        .lower_case = lower};
}

// What is put into a text, which must not grow without bound.
const std::string& read_inserted(const JsonView& json) {
  constexpr std::size_t kMost = 64;
  if (json.string().size() > kMost) json.refuse("a text of at most 64 bytes");
  return json.string();
}

void read_steps(const JsonView& json, std::vector<NormalizerStep>& steps) {
  const JsonView type = json.at("type");
  const std::string& name = type.string();
  if (name == "Sequence") {
    const JsonView parts = json.at("normalizers");
    for (std::size_t i = 0; i < parts.size(); ++i) read_steps(parts.at(i), steps);
  } else if (name == "BertNormalizer") {
    steps.push_back(read_bert(json));
  } else if (name == "NFC") {
    steps.emplace_back(NormalForm::kComposed);
  } else if (name == "NFD") {
    steps.emplace_back(NormalForm::kDecomposed);
  } else if (name == "Lowercase") {
    steps.emplace_back(LowerCase{});
  } else if (name == "Prepend") {
    steps.emplace_back(Prepend{read_inserted(json.at("prepend"))});
  } else if (name == "Replace") {
    steps.emplace_back(Replace{read_pattern(json), read_inserted(json.at("content"))});
  } else {
    type.refuse(
        "BertNormalizer, NFC, NFD, Lowercase, Prepend, Replace or Sequence (no other is "
        "supported)");
  }
}

}  // namespace

Normalizer read_normalizer(const JsonView& json) {
  std::vector<NormalizerStep> steps;
  if (!json.value().is_null()) read_steps(json, steps);
  return Normalizer(std::move(steps));
}

}  // namespace performer::data::hf
