#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "performer/data/hf/unicode.h"

namespace performer::data::hf {

/// BERT's: control characters go, white space becomes spaces, Chinese letters get spaces around
/// them, accents go and letters become small, each if asked for.
struct BertNormalizer {
  bool clean_text = true;
  bool handle_chinese = true;
  bool strip_accents = true;
  bool lower_case = true;
};
struct LowerCase {};
/// Before a text that is not empty.
struct Prepend {
  std::string text;
};
struct Replace {
  std::string pattern;  // not empty
  std::string content;
};

using NormalizerStep = std::variant<BertNormalizer, NormalForm, LowerCase, Prepend, Replace>;

/// What happens to a text before it is split; without steps nothing.
class Normalizer {
 public:
  Normalizer() = default;
  explicit Normalizer(std::vector<NormalizerStep> steps) : steps_(std::move(steps)) {}
  std::string apply(std::string_view text) const;
  bool empty() const { return steps_.empty(); }

 private:
  std::vector<NormalizerStep> steps_;
};

/// `text` with each `pattern` in it replaced, from the left.
std::string replaced(std::string_view text, const Replace& replace);

}  // namespace performer::data::hf
