#include "performer/core/config.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "performer/core/error.h"
#include "performer/core/json.h"
#include "performer/core/log.h"
#include "performer/core/nearest.h"
#include "performer/core/safe_text.h"

namespace performer {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kMostText = 1 << 22;  // of a recipe's value, escapes included

constexpr std::string_view type_name(const FieldValue& value) {
  constexpr std::string_view kNames[] = {"true or false",
                                         "a whole number",
                                         "a number",
                                         "a string",
                                         "a string or a list of strings",
                                         "a list of whole numbers"};
  return kNames[value.index()];
}

bool assign(bool& field, const Json& value) {
  if (!value.is_boolean()) return false;
  field = value.get<bool>();
  return true;
}

bool assign(std::int64_t& field, const Json& value) {
  if (!value.is_number_integer()) return false;
  if (value.is_number_unsigned() && value.get<std::uint64_t>() > INT64_MAX) return false;
  field = value.get<std::int64_t>();
  return true;
}

bool assign(double& field, const Json& value) {
  if (!value.is_number() || !std::isfinite(value.get<double>())) return false;
  field = value.get<double>();
  return true;
}

bool assign(std::string& field, const Json& value) {
  if (!value.is_string()) return false;
  field = value.get<std::string>();
  return true;
}

template <class T>
bool assign(std::vector<T>& field, const Json& value) {
  if constexpr (std::is_same_v<T, std::string>) {
    if (value.is_string()) {  // a list of one; of an empty one: of none
      field.assign(value.get_ref<const std::string&>().empty() ? 0 : 1, value.get<std::string>());
      return true;
    }
  }
  if (!value.is_array()) return false;
  std::vector<T> items(value.size());
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (!assign(items[i], value[i])) return false;
  }
  field = std::move(items);
  return true;
}

std::string join(const std::vector<std::string_view>& words) {
  std::string text;
  for (const auto word : words) text += (text.empty() ? "" : ", ") + std::string(word);
  return text;
}

// As written where it could be a key, else in quotes and harmless.
std::string key_text(const std::string& name) {
  constexpr std::string_view kLetters =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";
  const bool plain = name.size() <= 100 && name.find_first_not_of(kLetters) == std::string::npos;
  return plain ? name : shown(name);
}

// `what` begins the message: the place and the name.
void check_range(const Field& field, const std::string& what) {
  const auto* number = std::get_if<std::int64_t*>(&field.value);
  if (number == nullptr) return;
  const std::int64_t value = **number;
  if (value < field.range.least) {
    fail(ExitCode::kUsage, "{} must be at least {}, got {}", what, field.range.least, value);
  }
  if (value > field.range.most) {
    fail(ExitCode::kUsage, "{} must be at most {}, got {}", what, field.range.most, value);
  }
}

void check_choice(const Field& field, const std::string& what) {
  if (field.choices.empty()) return;
  const auto& word = *std::get<std::string*>(field.value);
  const auto& choices = field.choices;
  if (std::find(choices.begin(), choices.end(), word) != choices.end()) return;
  const auto hint = std::find_if(field.hints.begin(), field.hints.end(),
                                 [&](const Hints::Pair& pair) { return pair.first == word; });
  const auto suggestion = hint == field.hints.end()
                              ? did_you_mean(word, {choices.begin(), choices.end()})
                              : fmt::format("; did you mean {}?", hint->second);
  fail(ExitCode::kUsage, "{} must be one of {}, got {}{}", what, join(choices), shown(word),
       suggestion);
}

[[noreturn]] void fail_unknown(const std::string& place, const std::string& name,
                               const std::vector<Field>& fields) {
  std::vector<std::string> names;
  std::map<std::string, std::string> own;
  for (const auto& field : fields) {
    names.push_back(field.name);
    for (const auto* others : {&field.aliases, &field.resembling}) {
      for (const auto& other : *others) {
        names.push_back(other);
        own.emplace(other, field.name);
      }
    }
  }
  auto near = nearest_name(name, names);
  if (own.contains(near)) near = own.at(near);
  fail(ExitCode::kUsage, "{}: unknown key {}; {}", place, key_text(name),
       near.empty() ? std::string("--dump-config lists the known ones")
                    : fmt::format("did you mean {}?", near));
}

}  // namespace

std::string own_name(const std::vector<Field>& fields, const std::string& name) {
  std::vector<std::string> bare;  // fields of which it is an alias without the section
  for (const auto& field : fields) {
    if (field.name == name) return name;
    for (const auto& alias : field.aliases) {
      if (alias == name) return field.name;
      if (alias.ends_with("." + name)) bare.push_back(field.name);
    }
  }
  return bare.size() == 1 ? bare.front() : name;
}

ConfigTree ConfigTree::from_json(const Json& values, std::string source) {
  ConfigTree tree;
  const auto walk = [&](auto&& self, const Json& object, const std::string& prefix) -> void {
    for (const auto& [key, value] : object.items()) {
      if (value.is_object()) {
        self(self, value, prefix + key + ".");
      } else {
        tree.put({prefix + key, source, source, value.dump()});
      }
    }
  };
  walk(walk, values, "");
  return tree;
}

void ConfigTree::put(Entry entry) {
  constexpr std::size_t kMostKeys = 10'000;
  // At the end, not in place: the last one wins under another name of the field too.
  std::erase_if(entries_, [&](const Entry& other) { return other.name == entry.name; });
  if (entries_.size() == kMostKeys) {
    fail(ExitCode::kUsage, "{}: more than {} keys", entry.place, kMostKeys);
  }
  entries_.push_back(std::move(entry));
}

bool ConfigTree::contains(std::string_view dotted) const { return find(dotted) != nullptr; }

const ConfigTree::Entry* ConfigTree::find(std::string_view dotted) const {
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const Entry& entry) { return entry.name == dotted; });
  return found == entries_.end() ? nullptr : &*found;
}

std::string ConfigTree::file_of(std::string_view dotted) const {
  const auto* entry = find(dotted);
  return entry == nullptr || entry->assigned ? "" : entry->source;
}

std::optional<ConfigTree::Text> ConfigTree::take_text(std::string_view dotted) {
  const auto* entry = find(dotted);
  if (entry == nullptr) return std::nullopt;
  Text taken{{}, entry->place};
  if (!assign(taken.text, parse_json(entry->json, entry->place, {.bytes = kMostText}))) {
    fail(ExitCode::kUsage, "{}: {} must be a string, got {}", entry->place, dotted,
         shortened(entry->json));
  }
  std::erase_if(entries_, [&](const Entry& other) { return other.name == dotted; });
  return taken;
}

void ConfigTree::put_over(const ConfigTree& other) {
  for (const auto& entry : other.entries_) put(entry);
}

// Aliases replaced. One field under two names is refused, except where --set comes after the file,
// or one file after another.
std::vector<ConfigTree::Entry> ConfigTree::with_own_names(const std::vector<Field>& fields) const {
  std::vector<Entry> entries;
  std::map<std::string, const Entry*> given;
  for (const auto& entry : entries_) {
    entries.push_back(entry);
    auto& renamed = entries.back();
    renamed.name = own_name(fields, entry.name);
    if (renamed.name != entry.name) {
      log_info("{}: {} is taken as {}", entry.place, entry.name, renamed.name);
    }
    const auto [before, fresh] = given.emplace(renamed.name, &entry);
    if (!fresh && !entry.assigned && entry.source == before->second->source) {
      fail(ExitCode::kUsage, "{}: {} and {} ({}) are the same key; keep one", entry.place,
           entry.name, before->second->name, before->second->place);
    }
  }
  return entries;
}

void ConfigTree::read_into(const std::vector<Field>& fields) const {
  for (const auto& entry : with_own_names(fields)) {
    const auto field = std::find_if(fields.begin(), fields.end(),
                                    [&](const Field& f) { return f.name == entry.name; });
    if (field == fields.end()) fail_unknown(entry.place, entry.name, fields);
    const auto value = parse_json(entry.json, entry.place, {.bytes = kMostText});
    if (!std::visit([&](auto* target) { return assign(*target, value); }, field->value)) {
      fail(ExitCode::kUsage, "{}: {} must be {}, got {}", entry.place, entry.name,
           type_name(field->value), shortened(entry.json));
    }
    check_range(*field, entry.place + ": " + entry.name);
    check_choice(*field, entry.place + ": " + entry.name);
  }
}

void check_ranges(const std::vector<Field>& fields, std::string_view section) {
  for (const auto& field : fields) check_range(field, fmt::format("{}{}:", section, field.name));
}

void check_choices(const std::vector<Field>& fields, std::string_view section) {
  for (const auto& field : fields) check_choice(field, fmt::format("{}{}:", section, field.name));
}

Json fields_to_json(const std::vector<Field>& fields) {
  Json object = Json::object();
  for (const auto& field : fields) {
    Json* place = &object;
    std::string_view rest = field.name;
    for (auto dot = rest.find('.'); dot != std::string_view::npos; dot = rest.find('.')) {
      place = &(*place)[std::string(rest.substr(0, dot))];
      rest.remove_prefix(dot + 1);
    }
    std::visit([&](const auto* value) { (*place)[std::string(rest)] = *value; }, field.value);
  }
  return object;
}

}  // namespace performer
