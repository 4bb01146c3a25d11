#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "performer/data/hf/json_fields.h"
#include "performer/data/hf/step_json.h"

namespace performer::data::hf {
namespace {

PreTokenizerStep read_pattern_split(const JsonView& json) {
  const JsonView pattern = json.at("pattern");
  const bool expression = pattern.contains("Regex");
  const auto known = expression ? known_pattern(pattern.at("Regex").string()) : std::nullopt;
  if (!known)
    pattern.refuse(fmt::format("the Regex of {} (no other is supported)", known_patterns()));
  // The patterns leave nothing out, so both ways of saying it give the same words.
  const JsonView behavior = json.at("behavior");
  const bool inverted = flag_of(json, "invert", false);
  if (behavior.string() != (inverted ? "Removed" : "Isolated")) {
    behavior.refuse("Isolated, or Removed with invert (no other is supported)");
  }
  return PatternSplit{*known};
}

PreTokenizerStep read_metaspace(const JsonView& json) {
  letter_of(json.at("replacement"));
  Metaspace step{.letter = json.at("replacement").string(), .split = flag_of(json, "split", true)};
  const std::string before = text_of(json, "prepend_scheme", "always");
  if (before == "never" || !flag_of(json, "add_prefix_space", true)) {
    step.before = Metaspace::Before::kNever;
  } else if (before == "first") {
    step.before = Metaspace::Before::kFirst;
  } else if (before != "always") {
    json.at("prepend_scheme").refuse("always, first or never");
  }
  return step;
}

void read_steps(const JsonView& json, std::vector<PreTokenizerStep>& steps) {
  const JsonView type = json.at("type");
  const std::string& name = type.string();
  if (name == "Sequence") {
    const JsonView parts = json.at("pretokenizers");
    for (std::size_t i = 0; i < parts.size(); ++i) read_steps(parts.at(i), steps);
  } else if (name == "BertPreTokenizer") {
    steps.emplace_back(BertSplit{});
  } else if (name == "WhitespaceSplit") {
    steps.emplace_back(SpaceSplit{});
  } else if (name == "ByteLevel") {
    steps.emplace_back(ByteLevel{.prefix_space = flag_of(json, "add_prefix_space", true),
                                 .split = flag_of(json, "use_regex", true)});
  } else if (name == "Split") {
    steps.push_back(read_pattern_split(json));
  } else if (name == "Digits") {
    steps.emplace_back(DigitSplit{flag_of(json, "individual_digits", false)});
  } else if (name == "Metaspace") {
    steps.push_back(read_metaspace(json));
  } else {
    type.refuse(
        "BertPreTokenizer, WhitespaceSplit, ByteLevel, Split, Digits, Metaspace or Sequence (no "
        "other is supported)");
  }
}

}  // namespace

PreTokenizer read_pre_tokenizer(const JsonView& json) {
  std::vector<PreTokenizerStep> steps;
  if (!json.value().is_null()) read_steps(json, steps);
  // Each makes a text up to three times as long.
  const auto grows = [](const PreTokenizerStep& step) {
    return std::holds_alternative<ByteLevel>(step) || std::holds_alternative<Metaspace>(step);
  };
  if (std::ranges::count_if(steps, grows) > 1) json.refuse("with one ByteLevel or Metaspace alone");
  return PreTokenizer(std::move(steps));
}

}  // namespace performer::data::hf
