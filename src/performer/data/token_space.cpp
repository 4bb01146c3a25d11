#include "performer/data/token_space.h"

#include <fmt/format.h>

#include <charconv>
#include <nlohmann/json.hpp>
#include <utility>

#include "performer/core/error.h"
#include "performer/core/json.h"
#include "performer/core/safe_text.h"
#include "performer/data/alphabet.h"
#include "performer/data/hf/open_tokenizer.h"
#include "performer/data/sentence_piece.h"

namespace performer::data {
namespace {

constexpr std::int64_t kBytes = 256;
constexpr std::int64_t kMaxVocabulary = std::int64_t{1} << 31;

// The letter that begins there, of one byte or more.
std::string_view letter_at(std::string_view text, std::size_t begin) {
  const auto inside = [&](std::size_t i) {
    return i < text.size() && (static_cast<unsigned char>(text[i]) & 0xC0U) == 0x80U;
  };
  std::size_t end = begin + 1;
  while (inside(end)) ++end;
  return text.substr(begin, end - begin);
}

std::vector<std::int64_t> encode_protein(std::string_view text) {
  std::vector<std::int64_t> tokens;
  tokens.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const std::uint8_t meaning = alphabet::kMeaning[static_cast<unsigned char>(c)];
    if (meaning == alphabet::kBlank || meaning == alphabet::kGap || c == '\n') continue;
    if (meaning >= alphabet::kInvalid) {
      fail(ExitCode::kBadInput, "sequence: {} is not an amino acid; allowed are {}",
           shown(letter_at(text, i)), alphabet::kLetters);
    }
    tokens.push_back(meaning < alphabet::kSpecial ? meaning : alphabet::kX);
  }
  return tokens;
}

std::vector<std::int64_t> encode_ids(std::string_view text, std::int64_t vocabulary) {
  constexpr std::string_view kBlanks = " \t\r\n";
  std::vector<std::int64_t> tokens;
  for (auto at = text.find_first_not_of(kBlanks); at != std::string_view::npos;
       at = text.find_first_not_of(kBlanks, at)) {
    const auto word = text.substr(at, text.find_first_of(kBlanks, at) - at);
    std::int64_t token = -1;
    const auto [rest, error] = std::from_chars(word.data(), word.data() + word.size(), token);
    if (error != std::errc() || rest != word.data() + word.size() || token < 0 ||
        token >= vocabulary) {
      fail(ExitCode::kBadInput,
           "tokens: must be numbers from 0 to {} with blanks between, got {}; this model came "
           "without a tokenizer that the program knows",
           vocabulary - 1, shown(std::string(word)));
    }
    tokens.push_back(token);
    at += word.size();
    if (at >= text.size()) break;
  }
  return tokens;
}

void check_id(const char* what, std::int64_t id, std::int64_t vocabulary) {
  if (id >= -1 && id < vocabulary) return;
  fail(ExitCode::kCorrupt, "tokenizer.json: {} is {}, outside a vocabulary of {}", what, id,
       vocabulary);
}

void check_ids(const TokenSpace& s) {
  if (s.vocabulary < 1 || s.vocabulary > kMaxVocabulary) {
    fail(ExitCode::kCorrupt, "tokenizer.json: a vocabulary of {} cannot be", s.vocabulary);
  }
  check_id("pad", s.pad, s.vocabulary);
  check_id("bos", s.bos, s.vocabulary);
  check_id("eos", s.eos, s.vocabulary);
  check_id("mask", s.mask, s.vocabulary);
  check_id("start", s.start, s.vocabulary);
  if (s.first_regular < 0 || s.regular < 1 || s.regular > s.vocabulary - s.first_regular) {
    fail(ExitCode::kCorrupt, "tokenizer.json: {} regular tokens from {} on, of {}", s.regular,
         s.first_regular, s.vocabulary);
  }
}

}  // namespace

TokenSpace protein_space() {
  TokenSpace space;
  space.vocabulary = alphabet::kVocabulary;
  space.pad = alphabet::kPad;
  space.bos = space.start = alphabet::kBos;
  space.eos = alphabet::kEos;
  space.mask = alphabet::kMask;
  space.first_regular = alphabet::kFirstLetter;
  space.regular = static_cast<std::int64_t>(alphabet::kLetters.size());
  return space;
}

TokenSpace byte_space() {
  TokenSpace space;
  space.kind = "bytes";
  space.regular = kBytes;
  space.pad = kBytes;
  space.bos = kBytes + 1;
  space.eos = space.start = kBytes + 2;
  space.mask = kBytes + 3;
  space.vocabulary = kBytes + 4;
  return space;
}

TokenSpace id_space(std::int64_t vocabulary) {
  TokenSpace space;
  space.kind = "ids";
  space.regular = space.vocabulary = vocabulary;
  return space;
}

std::vector<std::int64_t> TokenSpace::encode(std::string_view text) const {
  if (kind == "protein") return encode_protein(text);
  if (kind == "sentencepiece") return pieces->encode(text);
  if (kind == "ids") return encode_ids(text, vocabulary);
  if (kind == "hf") return hf->tokenizer->encode(text);
  if (kind != "bytes") fail(ExitCode::kUsage, "{} tokens have no written form", kind);
  std::vector<std::int64_t> tokens;
  tokens.reserve(text.size());
  for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
  return tokens;
}

std::vector<std::int64_t> TokenSpace::encode_whole(std::string_view text) const {
  return kind == "hf" ? hf->tokenizer->encode_whole(text) : encode(text);
}

std::string TokenSpace::decode(std::span<const std::int64_t> tokens) const {
  if (kind == "sentencepiece") return pieces->decode(tokens);
  if (kind == "hf") return hf->tokenizer->decode(tokens);
  std::string text;
  for (const std::int64_t token : tokens) {
    if (token < first_regular || token >= first_regular + regular) continue;
    if (kind == "protein") {
      text += alphabet::name_of(token);
    } else if (kind == "bytes") {
      text += static_cast<char>(token);
    } else {
      text += fmt::format("{}{}", text.empty() ? "" : " ", token);
    }
  }
  return text;
}

bool TokenSpace::is_regular(std::int64_t token) const {
  if (token < 0 || token >= vocabulary) return false;
  if (kind == "hf") {
    return token < hf->tokenizer->vocabulary() && !hf->tokenizer->is_special(token);
  }
  return token >= first_regular && token < first_regular + regular;
}

std::vector<std::int64_t> TokenSpace::never_generated() const {
  std::vector<std::int64_t> tokens;
  for (std::int64_t token = 0; token < vocabulary; ++token) {
    const bool is_regular =
        hf ? token < hf->tokenizer->vocabulary() && !hf->tokenizer->is_special(token)
           : token >= first_regular && token < first_regular + regular;
    if (!is_regular && token != eos) tokens.push_back(token);
  }
  return tokens;
}

nlohmann::ordered_json TokenSpace::to_json() const {
  return {{"kind", kind},       {"vocabulary", vocabulary},
          {"pad", pad},         {"bos", bos},
          {"eos", eos},         {"mask", mask},
          {"start", start},     {"first_regular", first_regular},
          {"regular", regular}, {"classes", classes},
          {"shape", shape}};
}

std::string TokenSpace::model_bytes() const {
  if (hf) return hf::bundle(hf->files);
  return pieces ? pieces->bytes() : std::string();
}

TokenSpace TokenSpace::from_json(const nlohmann::ordered_json& values, std::string model_bytes) {
  const JsonView json(values, "tokenizer.json");
  TokenSpace s;
  s.kind = json.at("kind").string();
  s.vocabulary = json.at("vocabulary").integer();
  s.pad = json.at("pad").integer();
  s.bos = json.at("bos").integer();
  s.eos = json.at("eos").integer();
  s.mask = json.at("mask").integer();
  s.start = json.at("start").integer();
  s.first_regular = json.at("first_regular").integer();
  s.regular = json.at("regular").integer();
  s.classes = json.at("classes").strings();
  s.shape = json.at("shape").integers(1);
  check_ids(s);
  if (s.kind == "sentencepiece") {
    s.pieces = std::make_shared<const SentencePiece>(std::move(model_bytes), "tokenizer.model");
    if (s.pieces->vocabulary() != s.vocabulary) {
      fail(ExitCode::kCorrupt, "tokenizer.model: {} pieces, tokenizer.json says {}",
           s.pieces->vocabulary(), s.vocabulary);
    }
  } else if (s.kind == "hf") {
    s.hf = hf_space(hf::unbundle(model_bytes, "tokenizer.model")).hf;
    // A model may have rows for more tokens than there are.
    if (s.hf->tokenizer->vocabulary() > s.vocabulary) {
      fail(ExitCode::kCorrupt, "tokenizer.model: {} tokens, tokenizer.json says {}",
           s.hf->tokenizer->vocabulary(), s.vocabulary);
    }
  } else if (s.kind != "protein" && s.kind != "bytes" && s.kind != "pixels" && s.kind != "recall" &&
             s.kind != "ids") {
    fail(ExitCode::kCorrupt, "tokenizer.json: unknown kind '{}'", s.kind);
  }
  return s;
}

}  // namespace performer::data
