#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "performer/core/error.h"

/// The one reader of JSON. Files come from others: the reader goes through them once, keeps to the
/// limits whatever they say, and refuses what has two meanings: a key that occurs twice, text that
/// is not UTF-8, a number beyond the finite ones, anything after the value. Errors name the file,
/// the line and the column (in bytes).
namespace performer {

struct JsonLimits {
  std::int64_t bytes = 1 << 20;
  std::int64_t depth = 32;
  std::int64_t values = 1 << 20;          // scalars, lists and objects together
  ExitCode failure = ExitCode::kCorrupt;  // of a text that is refused
};

/// What a reader without a tree of values overrides. The order is that of the text.
class JsonEvents {
 public:
  JsonEvents() = default;
  virtual ~JsonEvents() = default;
  JsonEvents(const JsonEvents&) = delete;
  JsonEvents& operator=(const JsonEvents&) = delete;

  virtual void null() = 0;
  virtual void boolean(bool value) = 0;
  virtual void integer(std::int64_t value) = 0;
  virtual void large_integer(std::uint64_t value) = 0;  // above 2^63 - 1
  virtual void number(double value, const std::string& text) = 0;
  virtual void string(std::string value) = 0;
  virtual void start_object() = 0;
  virtual void key(std::string name) = 0;
  virtual void end_object() = 0;
  virtual void start_array() = 0;
  virtual void end_array() = 0;
};

/// Reads `text`, which errors call `name`, event by event.
void read_json_events(std::string_view text, const std::string& name, const JsonLimits& limits,
                      JsonEvents& events);

/// The whole value, in memory bounded by the limits.
nlohmann::ordered_json parse_json(std::string_view text, const std::string& name,
                                  const JsonLimits& limits = {});

/// A line of a log that may be damaged: nothing where it is not a JSON value.
std::optional<nlohmann::ordered_json> try_parse_json(std::string_view text,
                                                     const JsonLimits& limits = {});

/// A value and where it stands. A member that is absent, of another type or out of range is an
/// Error (kCorrupt) that names the file and the dotted place; numbers never change their value.
class JsonView {
 public:
  /// Views `value`, which must outlive it.
  JsonView(const nlohmann::ordered_json& value, std::string file,
           ExitCode failure = ExitCode::kCorrupt);

  JsonView at(std::string_view key) const;  // of an object
  JsonView at(std::size_t index) const;     // of a list
  std::size_t size() const;                 // of a list
  bool contains(std::string_view key) const;

  std::int64_t integer(std::int64_t least = INT64_MIN, std::int64_t most = INT64_MAX) const;
  double number() const;
  bool boolean() const;
  const std::string& string() const;
  std::vector<std::string> strings() const;
  std::vector<std::int64_t> integers(std::int64_t least = INT64_MIN) const;

  const nlohmann::ordered_json& value() const { return *value_; }
  /// Throws the Error of a value that is not what it must be.
  [[noreturn]] void refuse(std::string_view required) const;

 private:
  JsonView member(const nlohmann::ordered_json& value, std::string place) const;

  const nlohmann::ordered_json* value_;
  std::string file_;
  std::string place_;  // model.layers, files[3].name; empty: the whole
  ExitCode failure_;
};

}  // namespace performer
