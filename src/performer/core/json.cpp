#include "performer/core/json.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <unordered_set>
#include <utility>

#include "performer/core/json_tree.h"
#include "performer/core/safe_text.h"

namespace performer {
namespace {

using Json = nlohmann::ordered_json;

// Walks the text and tells how far the parser is.
class Cursor {
 public:
  using iterator_category = std::forward_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  Cursor() = default;
  Cursor(const char* at, const char** reached) : at_(at), reached_(reached) {}
  reference operator*() const { return *at_; }
  Cursor& operator++() {
    *reached_ = ++at_;
    return *this;
  }
  Cursor operator++(int) {
    const Cursor before = *this;
    ++*this;
    return before;
  }
  bool operator==(const Cursor& other) const { return at_ == other.at_; }
  bool operator!=(const Cursor& other) const { return at_ != other.at_; }

 private:
  const char* at_ = nullptr;
  const char** reached_ = nullptr;
};

struct Source {
  std::string_view text;
  const std::string& name;
  const JsonLimits& limits;
  const char* reached;

  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    const auto end = static_cast<std::size_t>(reached - text.data());
    const auto read = text.substr(0, end);
    const auto line = 1 + std::count(read.begin(), read.end(), '\n');
    const auto column = read.size() - (read.rfind('\n') + 1);  // npos + 1 = 0
    fail(limits.failure, "{}: line {}, column {}: {}", name, line, column,
         fmt::format(format, std::forward<Args>(args)...));
  }
};

// Keeps the rules between nlohmann's parser and the reader of the events. The names are those of
// nlohmann's SAX interface, where true means to go on.
class Rules {
 public:
  Rules(Source& source, JsonEvents& events) : source_(source), events_(events) {}

  bool null() {
    return counted([&] { events_.null(); });
  }
  bool boolean(bool value) {
    return counted([&] { events_.boolean(value); });
  }
  bool number_integer(std::int64_t value) {
    return counted([&] {
      if (value == 0) return events_.number(-0.0, "-0");  // no integer has this sign
      events_.integer(value);
    });
  }
  bool number_unsigned(std::uint64_t value) {
    return counted([&] {
      if (value > INT64_MAX) return events_.large_integer(value);
      events_.integer(static_cast<std::int64_t>(value));
    });
  }
  bool number_float(double value, const std::string& text) {
    return counted([&] { events_.number(value, text); });
  }
  bool string(std::string& value) {
    return counted([&] { events_.string(std::move(value)); });
  }
  bool binary(std::vector<std::uint8_t>& /*bytes*/) { return false; }  // text has none

  bool start_object(std::size_t /*unknown*/) {
    enter();
    keys_.emplace_back();
    return counted([&] { events_.start_object(); });
  }
  bool key(std::string& name) {
    if (!keys_.back().insert(name).second) source_.refuse("the key {} occurs twice", shown(name));
    events_.key(std::move(name));
    return true;
  }
  bool end_object() {
    keys_.pop_back();
    --depth_;
    events_.end_object();
    return true;
  }
  bool start_array(std::size_t /*unknown*/) {
    enter();
    return counted([&] { events_.start_array(); });
  }
  bool end_array() {
    --depth_;
    events_.end_array();
    return true;
  }
  bool parse_error(std::size_t /*position*/, const std::string& /*token*/,
                   const nlohmann::json::exception& error) {
    constexpr int kOutOfRange = 406;
    if (error.id == kOutOfRange) source_.refuse("a number beyond the finite ones");
    const auto* begin = source_.text.data();
    const auto good = utf8_prefix(source_.text);
    if (begin + good < source_.reached) {
      source_.reached = begin + good + 1;
      source_.refuse("not JSON: the byte {:#04x} is not UTF-8",
                     static_cast<unsigned char>(source_.text[good]));
    }
    if (source_.reached == begin + source_.text.size() && depth_ > 0) {
      source_.refuse("not JSON: it ends within a value; the file is cut short");
    }
    source_.refuse("not JSON");
  }

 private:
  void enter() {
    if (++depth_ > source_.limits.depth) {
      source_.refuse("nested deeper than {} levels", source_.limits.depth);
    }
  }
  template <class Event>
  bool counted(const Event& event) {
    if (++values_ > source_.limits.values) {
      source_.refuse("more than {} values", source_.limits.values);
    }
    event();
    return true;
  }

  Source& source_;
  JsonEvents& events_;
  std::int64_t depth_ = 0;
  std::int64_t values_ = 0;
  std::vector<std::unordered_set<std::string>> keys_;  // of the objects that are open
};

}  // namespace

void read_json_events(std::string_view text, const std::string& name, const JsonLimits& limits,
                      JsonEvents& events) {
  if (static_cast<std::int64_t>(text.size()) > limits.bytes) {
    fail(limits.failure, "{}: {} bytes, where at most {} are allowed", name, text.size(),
         limits.bytes);
  }
  const char* begin = text.data();
  Source source{text, name, limits, begin};
  // The parser takes a NUL for the end of the text, whatever follows.
  if (const auto nul = text.find('\0'); nul != std::string_view::npos) {
    source.reached = begin + nul + 1;
    source.refuse("not JSON: a NUL byte");
  }
  Rules rules(source, events);
  nlohmann::json::sax_parse(Cursor(begin, &source.reached),
                            Cursor(begin + text.size(), &source.reached), &rules);
}

Json parse_json(std::string_view text, const std::string& name, const JsonLimits& limits) {
  JsonTree tree;
  read_json_events(text, name, limits, tree);
  return tree.take();
}

std::optional<Json> try_parse_json(std::string_view text, const JsonLimits& limits) {
  try {
    return parse_json(text, "", limits);
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace performer
