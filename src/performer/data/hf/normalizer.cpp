#include "performer/data/hf/normalizer.h"

#include <utility>

#include "performer/core/error.h"

namespace performer::data::hf {
namespace {

std::string cleaned(std::string_view text) {
  constexpr char32_t kReplacement = 0xFFFD;
  std::string clean;
  clean.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    const char32_t c = next_letter(text, i);
    const bool feed = c == '\t' || c == '\n' || c == '\r';
    if (c == kReplacement || (is_control(c) && !feed)) continue;
    append_letter(clean, is_space(c) ? U' ' : c);
  }
  return clean;
}

std::string with_chinese_apart(std::string_view text) {
  std::string apart;
  apart.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t begin = i;
    const bool chinese = is_chinese(next_letter(text, i));
    if (chinese) apart += ' ';
    apart += text.substr(begin, i - begin);
    if (chinese) apart += ' ';
  }
  return apart;
}

std::string without_accents(std::string_view text) {
  const std::string letters = normalized(text, NormalForm::kDecomposed);
  std::string plain;
  plain.reserve(letters.size());
  for (std::size_t i = 0; i < letters.size();) {
    const std::size_t begin = i;
    if (!is_accent(next_letter(letters, i))) plain.append(letters, begin, i - begin);
  }
  return plain;
}

std::string apply_step(const BertNormalizer& bert, std::string text) {
  if (bert.clean_text) text = cleaned(text);
  if (bert.handle_chinese) text = with_chinese_apart(text);
  if (bert.strip_accents) text = without_accents(text);
  if (bert.lower_case) text = lower_case(text);
  return text;
}

std::string apply_step(NormalForm form, const std::string& text) { return normalized(text, form); }

std::string apply_step(LowerCase /*step*/, const std::string& text) { return lower_case(text); }

std::string apply_step(const Prepend& prepend, const std::string& text) {
  return text.empty() ? text : prepend.text + text;
}

std::string apply_step(const Replace& replace, const std::string& text) {
  return replaced(text, replace);
}

}  // namespace

std::string replaced(std::string_view text, const Replace& replace) {
  std::string result;
  result.reserve(text.size());
  while (true) {
    const std::size_t at = text.find(replace.pattern);
    result += text.substr(0, at);
    if (at == std::string_view::npos) return result;
    result += replace.content;
    text.remove_prefix(at + replace.pattern.size());
  }
}

std::string Normalizer::apply(std::string_view text) const {
  constexpr std::size_t kMostGrowth = 64;  // a space becomes three bytes, a Chinese letter five
  std::string result(text);
  for (const auto& step : steps_) {
    result = std::visit([&](const auto& s) { return apply_step(s, std::move(result)); }, step);
    if (result.size() / kMostGrowth > text.size() + kMostGrowth) {
      fail(ExitCode::kCorrupt, "tokenizer: its normalizer makes {} bytes and more of {}",
           result.size(), text.size());
    }
  }
  return result;
}

}  // namespace performer::data::hf
