#include <stdexcept>

// The parser relies on assumptions that some malformed texts break, as `a = 1979-05-27 3`. Release
// builds would go on from there, debug builds abort: here every build refuses the text.
namespace {

struct BrokenAssumption : std::runtime_error {
  BrokenAssumption() : std::runtime_error("") {}
};

constexpr void require_assumption(bool holds) {
  if (!holds) throw BrokenAssumption();
}

}  // namespace

#undef NDEBUG
// NOLINTNEXTLINE(readability-identifier-naming): the library's name
#define TOML_ASSERT(condition) require_assumption(static_cast<bool>(condition))
#include <toml++/toml.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "performer/core/config.h"
#include "performer/core/error.h"
#include "performer/core/file.h"
#include "performer/core/safe_text.h"
#include "performer/core/toml_guard.h"

namespace performer {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kMostBytes = 1 << 20;  // of a recipe

Json to_json(const toml::node& node, const std::string& place) {
  if (const auto* array = node.as_array()) {
    Json items = Json::array();
    for (const auto& item : *array) items.push_back(to_json(item, place));
    return items;
  }
  if (const auto value = node.as_boolean()) return value->get();
  if (const auto value = node.as_integer()) return value->get();
  if (const auto value = node.as_string()) return value->get();
  if (const auto value = node.as_floating_point(); value && std::isfinite(value->get())) {
    return value->get();
  }
  fail(ExitCode::kUsage, "{}: values are numbers, strings, true, false and lists of them", place);
}

// The parser shows what it met, line feeds too.
std::string in_one_line(std::string_view text) {
  std::string line;
  for (const char c : text) line += c == '\n' ? "\\n" : c == '\r' ? "\\r" : std::string(1, c);
  return line;
}

bool is_ascii(char c) { return static_cast<signed char>(c) >= 0; }

std::string_view line_of(std::string_view text, std::uint32_t number) {
  for (; number > 1 && !text.empty(); --number) {
    text.remove_prefix(std::min(text.find('\n'), text.size() - 1) + 1);
  }
  return text.substr(0, text.find('\n'));
}

// Letters outside ASCII may stand in strings and comments alone. Elsewhere the parser's tables take
// some of them for impossible, with undefined behaviour. So it reads the text first with another
// character in their places, one that it takes in strings and comments and nowhere else.
void check_letters(std::string_view text, const std::string& source) {
  if (std::all_of(text.begin(), text.end(), is_ascii)) return;
  std::string ascii(text);
  std::replace_if(
      ascii.begin(), ascii.end(), [](char c) { return !is_ascii(c); }, '~');
  try {
    static_cast<void>(toml::parse(ascii));
  } catch (const toml::parse_error& error) {
    const auto line = error.source().begin.line;
    const std::string_view met = line_of(text, line);
    if (std::all_of(met.begin(), met.end(), is_ascii)) throw;
    fail(ExitCode::kUsage,
         "{}:{}: a letter outside ASCII, where only strings and comments may have one", source,
         line);
  }
}

// Throws what the parser throws, and Error.
toml::table parse_or_throw(std::string_view text, const std::string& source) {
  constexpr std::string_view kMark = "\xef\xbb\xbf";  // of byte order
  if (text.starts_with(kMark)) text.remove_prefix(kMark.size());
  guard_toml(text, source);
  check_letters(text, source);
  return toml::parse(text);
}

toml::table parse(std::string_view text, const std::string& source) {
  try {
    return parse_or_throw(text, source);
  } catch (const toml::parse_error& error) {
    fail(ExitCode::kUsage, "{}:{}: {}", source, error.source().begin.line,
         in_one_line(error.description()));
  } catch (const BrokenAssumption&) {
    fail(ExitCode::kUsage, "{}: not TOML; `--dump-config` of a good recipe shows the form", source);
  }
}

template <class Put>
void walk(const toml::table& table, const std::string& prefix, const Put& put, int depth = 0) {
  constexpr int kMostDepth = 32;
  for (const auto& [key, node] : table) {
    const auto name = prefix + std::string(key.str());
    // Deeper ones are handed on as values, which a table cannot be.
    if (const auto* inner = node.as_table(); inner != nullptr && depth < kMostDepth) {
      walk(*inner, name + ".", put, depth + 1);
    } else {
      put(name, node);
    }
  }
}

std::string quoted(const std::string& text) { return Json(text).dump(); }

std::string toml_value(const FieldValue& value) {
  return std::visit(
      [](const auto* v) -> std::string {
        using T = std::remove_cvref_t<decltype(*v)>;
        if constexpr (std::is_same_v<T, double>) {
          auto text = fmt::format("{}", *v);  // shortest that reads back the same
          return text.find_first_of(".en") == std::string::npos ? text + ".0" : text;
        } else {
          return Json(*v).dump();
        }
      },
      value);
}

}  // namespace

ConfigTree ConfigTree::from_toml_file(const std::string& path) {
  std::string text;
  try {
    text = read_file(path, kMostBytes);
  } catch (const Error& error) {
    fail(ExitCode::kUsage, "{}; name a recipe, as in configs/", error.what());
  }
  return from_toml(text, path);
}

ConfigTree ConfigTree::from_toml(std::string_view text, std::string source) {
  ConfigTree tree;
  walk(parse(text, source), "", [&](const std::string& name, const toml::node& node) {
    auto place = fmt::format("{}:{}", source, node.source().begin.line);
    auto value = to_json(node, place).dump();
    tree.put({name, source, std::move(place), std::move(value)});
  });
  return tree;
}

void ConfigTree::set(std::string_view assignment, std::string_view option) {
  if (!is_utf8(assignment))
    fail(ExitCode::kUsage, "{} {}: is not UTF-8", option, shown(assignment));
  const auto equals = assignment.find('=');
  if (equals == 0 || equals == std::string_view::npos) {
    fail(ExitCode::kUsage, "{} {}: must be key=value, as in --set model.layers=6", option,
         assignment);
  }
  const std::string key(assignment.substr(0, equals)), text(assignment.substr(equals + 1));
  if (key.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-") !=
      std::string::npos) {
    fail(ExitCode::kUsage, "{} {}: {} is no key", option, assignment, quoted(key));
  }
  const std::string place = fmt::format("{} {}", option, key);
  std::string value;
  try {
    const auto table = parse_or_throw("value = " + text, place);
    if (table.size() != 1) throw Error(ExitCode::kUsage, "");
    value = to_json(*table.get("value"), place).dump();
  } catch (const std::runtime_error&) {
    value = quoted(text);  // a bare word or path
  }
  put({key, {}, place, std::move(value), true});
}

std::string fields_to_toml(const std::vector<Field>& fields) {
  std::string text, section;
  const auto section_of = [](const std::string& name) {
    const auto dot = name.rfind('.');
    return dot == std::string::npos ? std::string() : name.substr(0, dot);
  };
  for (const auto& field : fields) {
    const auto own = section_of(field.name);
    if (own != section) {
      text += fmt::format("\n[{}]\n", own);
      section = own;
    }
    const auto key = own.empty() ? field.name : field.name.substr(own.size() + 1);
    std::string choices;
    for (const auto choice : field.choices) {
      choices += (choices.empty() ? " [" : " | ") + std::string(choice);
    }
    if (!choices.empty()) choices += "]";
    text += fmt::format("{:<40} # {}{}\n", fmt::format("{} = {}", key, toml_value(field.value)),
                        field.help, choices);
  }
  return text;
}

}  // namespace performer
