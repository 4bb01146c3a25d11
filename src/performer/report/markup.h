#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace performer::report {

/// A name of an element or an attribute, written in the program.
class Name {
 public:
  consteval Name(const char* name) : name_(name) {  // NOLINT(google-explicit-constructor)
    for (const char c : name_) {
      const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
      if (!letter && c != '-' && !(c >= '0' && c <= '9')) throw "not a name";
    }
  }
  std::string_view text() const { return name_; }

 private:
  std::string_view name_;
};

struct Attribute {
  Name name;
  std::string value;
};

/// A piece of HTML or SVG. Text of others gets in through text(), attributes and data() alone, which
/// escape it; the rest are names and literals of the program. So no id, path or title can become
/// markup, wherever a page is put together.
class Markup {
 public:
  Markup() = default;

  /// Bytes that are not UTF-8 become U+FFFD; control characters other than line feeds, spaces.
  static Markup text(std::string_view text);
  /// <name key="value">content</name>
  static Markup element(Name name, std::initializer_list<Attribute> attributes,
                        const Markup& content);
  static Markup element(Name name, std::initializer_list<Attribute> attributes,
                        std::string_view text);
  /// <name key="value"/>: elements of SVG, and of HTML those that have no end tag.
  static Markup leaf(Name name, std::initializer_list<Attribute> attributes);
  /// JSON for scripts of the page, in an element that no text in it can end.
  static Markup data(const nlohmann::ordered_json& json);
  /// Markup, styles and scripts written in the program.
  class Literal {
   public:
    consteval Literal(const char* text) : text_(text) {}  // NOLINT(google-explicit-constructor)
    std::string_view text() const { return text_; }

   private:
    std::string_view text_;
  };
  static Markup literal(Literal literal);

  Markup& operator+=(const Markup& more) {
    text_ += more.text_;
    return *this;
  }
  friend Markup operator+(Markup a, const Markup& b) { return a += b; }

  const std::string& str() const { return text_; }
  bool empty() const { return text_.empty(); }

 private:
  std::string text_;
};

/// A coordinate of a picture: a tenth of a pixel.
std::string pixels(double value);

/// A number for people: as many digits as they read; "–" where it is not a number.
std::string number_text(double value, std::int64_t digits = 3);

/// 12345678 as "12,345,678".
std::string count_text(std::int64_t value);

}  // namespace performer::report
