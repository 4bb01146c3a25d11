#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace performer {

/// A config struct declares its fields once, in visit_fields(config, field):
///   field("heads", c.heads, "Attention heads; must divide dim.");
///   field("norm", c.norm, "Normalisation.", {"layer", "rms"});
///   field("layers", c.layers, "Blocks.", Range{1, 1 << 14}, Aliases{"num_layers"});
///   field("kernel", c.kernel, "Map.", {"positive", "relu"}, Hints{{"softmax", "positive"}});
///   field("attention", c.attention, "Attention of the layers.");   // a struct with visit_fields
/// Recipes, --set, --dump-config, help, limits and checkpoint metadata all derive from that list.
using FieldValue = std::variant<bool*, std::int64_t*, double*, std::string*,
                                std::vector<std::string>*, std::vector<std::int64_t>*>;

/// The values that a whole number may have. What sizes memory has an upper end.
struct Range {
  std::int64_t least = INT64_MIN;
  std::int64_t most = INT64_MAX;
};

/// Names that other programs have for the same key: accepted, with a line that says the own one. A
/// name without its section is taken too where one field alone has it.
struct Aliases {
  Aliases(std::initializer_list<std::string_view> list) : names(list) {}
  std::vector<std::string_view> names;
};

/// Words that are none of the choices, and the choice that was probably meant: refused with it.
struct Hints {
  using Pair = std::pair<std::string_view, std::string_view>;
  Hints(std::initializer_list<Pair> list) : meant(list) {}
  std::vector<Pair> meant;
};

/// Names of other keys of other programs: refused, with this key as the suggestion.
struct Resembles {
  Resembles(std::initializer_list<std::string_view> list) : names(list) {}
  std::vector<std::string_view> names;
};

struct Field {
  std::string name;  // dotted: model.attention.kind
  FieldValue value;
  std::string_view help;
  std::vector<std::string_view> choices;  // of a string; empty: any
  Range range;                            // of a whole number
  std::vector<std::string> aliases;       // dotted
  std::vector<Hints::Pair> hints;
  std::vector<std::string> resembling;  // dotted
};

namespace detail {

class FieldCollector {
 public:
  FieldCollector(std::vector<Field>& fields, std::string prefix)
      : fields_(fields), prefix_(std::move(prefix)) {}

  template <class T, class... More>
  void operator()(const char* name, T& value, const char* help, const More&... more) {
    if constexpr (std::constructible_from<FieldValue, T*>) {
      fields_.push_back({prefix_ + name, &value, help, {}, {}, {}, {}, {}});
      (add(more), ...);
    } else {
      visit_fields(value, FieldCollector(fields_, prefix_ + name + "."));
    }
  }
  template <class... More>
  void operator()(const char* name, std::string& value, const char* help,
                  std::initializer_list<std::string_view> choices, const More&... more) {
    (*this)(name, value, help, more...);
    fields_.back().choices = choices;
  }

 private:
  void add(const Range& range) { fields_.back().range = range; }
  void add(const Hints& hints) { fields_.back().hints = hints.meant; }
  void add(const Resembles& others) {
    for (const auto name : others.names) {
      fields_.back().resembling.push_back(prefix_ + std::string(name));
    }
  }
  void add(const Aliases& aliases) {
    for (const auto name : aliases.names) {
      fields_.back().aliases.push_back(prefix_ + std::string(name));
    }
  }

  std::vector<Field>& fields_;
  std::string prefix_;
};

}  // namespace detail

/// All fields of `config`, nested ones with dotted names, in the order of declaration.
template <class Config>
std::vector<Field> list_fields(Config& config) {
  std::vector<Field> fields;
  visit_fields(config, detail::FieldCollector(fields, ""));
  return fields;
}

/// The own name of the field that `name` means, which may be an alias; `name` where none does.
std::string own_name(const std::vector<Field>& fields, const std::string& name);

/// Throws Error (kUsage) for a whole number outside its range; `section`, with its dot, comes
/// before the names.
void check_ranges(const std::vector<Field>& fields, std::string_view section);

/// The same for a word that is none of its field's choices.
void check_choices(const std::vector<Field>& fields, std::string_view section);

/// Values as read from a file, with the place of each for messages.
class ConfigTree {
 public:
  /// A recipe. Errors of syntax name file and line.
  static ConfigTree from_toml_file(const std::string& path);
  static ConfigTree from_toml(std::string_view text, std::string source);
  static ConfigTree from_json(const nlohmann::ordered_json& values, std::string source);

  /// `model.layers=6`: the value in TOML's syntax; a bare word is a string. Errors name `option`.
  void set(std::string_view assignment, std::string_view option = "--set");

  /// Moves the values into `fields`. An unknown key, a wrong type or a value that is not among the
  /// choices or in the range is an Error (kUsage) with its place, and for a misspelt key a
  /// suggestion. Aliases are taken with a line in the log.
  void read_into(const std::vector<Field>& fields) const;

  bool contains(std::string_view dotted) const;

  /// The file that gives a key its value; empty where none does, or set().
  std::string file_of(std::string_view dotted) const;

  /// Takes a key out of the tree. Throws Error (kUsage) unless its value is a string.
  struct Text {
    std::string text, place;
  };
  std::optional<Text> take_text(std::string_view dotted);

  /// The values of `other` too, and instead of those here that have the same key.
  void put_over(const ConfigTree& other);

 private:
  struct Entry {
    std::string name;       // dotted
    std::string source;     // "recipe.toml"
    std::string place;      // "recipe.toml:12" or "--set"
    std::string json;       // the value
    bool assigned = false;  // by set()
  };
  void put(Entry entry);
  const Entry* find(std::string_view dotted) const;
  std::vector<Entry> with_own_names(const std::vector<Field>& fields) const;
  std::vector<Entry> entries_;
};

/// Nested object of all values.
nlohmann::ordered_json fields_to_json(const std::vector<Field>& fields);
/// A complete recipe in TOML, each key with its help as a comment.
std::string fields_to_toml(const std::vector<Field>& fields);

}  // namespace performer
