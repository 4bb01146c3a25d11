#include <nlohmann/json.hpp>

#include "performer/data/hf/json_fields.h"
#include "performer/data/hf/step_json.h"

namespace performer::data::hf {
namespace {

DecoderStep read_replace(const JsonView& json) {
  const JsonView content = json.at("content");
  Replace step{read_pattern(json), content.string()};
  // So that no chain of steps makes text grow without bound.
  if (step.content.size() > step.pattern.size()) content.refuse("no longer than the pattern");
  return step;
}

DecoderStep read_from_metaspace(const JsonView& json) {
  letter_of(json.at("replacement"));
  const bool never = text_of(json, "prepend_scheme", "always") == "never" ||
                     !flag_of(json, "add_prefix_space", true);
  return FromMetaspace{.letter = json.at("replacement").string(), .drop_first = !never};
}

void read_steps(const JsonView& json, std::vector<DecoderStep>& steps) {
  const JsonView type = json.at("type");
  const std::string& name = type.string();
  if (name == "Sequence") {
    const JsonView parts = json.at("decoders");
    for (std::size_t i = 0; i < parts.size(); ++i) read_steps(parts.at(i), steps);
  } else if (name == "WordPiece") {
    steps.emplace_back(JoinPieces{.prefix = text_of(json, "prefix", "##"),
                                  .clean_up = flag_of(json, "cleanup", true)});
  } else if (name == "ByteLevel") {
    steps.emplace_back(FromByteLetters{});
  } else if (name == "Replace") {
    steps.push_back(read_replace(json));
  } else if (name == "ByteFallback") {
    steps.emplace_back(FromBytes{});
  } else if (name == "Fuse") {
    steps.emplace_back(Fuse{});
  } else if (name == "Strip") {
    steps.emplace_back(Strip{.letter = letter_of(json.at("content")),
                             .start = json.at("start").integer(0),
                             .stop = json.at("stop").integer(0)});
  } else if (name == "Metaspace") {
    steps.push_back(read_from_metaspace(json));
  } else {
    type.refuse(
        "WordPiece, ByteLevel, Replace, ByteFallback, Fuse, Strip, Metaspace or Sequence (no other "
        "is supported)");
  }
}

}  // namespace

Decoder read_decoder(const JsonView& json) {
  std::vector<DecoderStep> steps;
  if (!json.value().is_null()) read_steps(json, steps);
  return Decoder(std::move(steps));
}

}  // namespace performer::data::hf
