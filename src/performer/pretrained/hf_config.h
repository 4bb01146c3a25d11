#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "performer/core/json.h"

namespace performer::pretrained {

/// config.json of a folder. A value of a wrong type or out of range is an Error (kCorrupt) that
/// names file and key, one that we cannot express an Error (kBadInput) that says what could be
/// taken. null is as good as absent, as in transformers.
class HfConfig {
 public:
  /// `file` is what errors call the text.
  HfConfig(std::string_view text, std::string file);

  const nlohmann::ordered_json& json() const { return json_; }

  bool has(std::string_view key) const;
  /// The value itself; kCorrupt where it is absent.
  JsonView at(std::string_view key) const { return view().at(key); }
  HfConfig section(std::string_view key) const;
  std::int64_t integer(std::string_view key, std::int64_t least, std::int64_t most) const;
  std::int64_t integer_or(std::string_view key, std::int64_t fallback, std::int64_t least,
                          std::int64_t most) const;
  double number_or(std::string_view key, double fallback) const;
  bool flag_or(std::string_view key, bool fallback) const;
  std::string text_or(std::string_view key, const std::string& fallback) const;

  /// The second of the pair whose first is the value of `key`; kBadInput for any other value.
  using Words = std::initializer_list<std::pair<std::string_view, std::string_view>>;
  std::string word(std::string_view key, const std::string& fallback, const Words& words) const;

  /// kBadInput unless the flag is absent or as given.
  void expect_flag(std::string_view key, bool expected) const;
  /// kBadInput unless the key is absent, null, false or an empty list or object.
  void expect_absent(std::string_view key) const;
  [[noreturn]] void refuse(std::string_view key, std::string_view accepted) const;

 private:
  HfConfig(nlohmann::ordered_json json, std::string file, std::string place);
  JsonView view() const { return {json_, place_.empty() ? file_ : file_ + ": " + place_}; }

  nlohmann::ordered_json json_;
  std::string file_, place_;
};

}  // namespace performer::pretrained
