#include "performer/core/config.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "performer/core/error.h"

namespace performer {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view type_name(const FieldValue& value) {
  constexpr std::string_view kNames[] = {"true or false",     "a whole number",
                                         "a number",          "a string",
                                         "a list of strings", "a list of whole numbers"};
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

// Levenshtein distance, one row at a time.
std::int64_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::int64_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::int64_t diagonal = row[0]++;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const auto replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

std::string_view last_part(std::string_view dotted) {
  return dotted.substr(dotted.rfind('.') + 1);  // npos + 1 = 0: the whole
}

}  // namespace

std::string nearest_name(std::string_view name, const std::vector<std::string>& names) {
  std::string best;
  auto best_distance = static_cast<std::int64_t>(name.size()) / 3 + 1;  // more is another word
  for (const auto& candidate : names) {
    // "layers" is meant to be "model.layers" as much as "model.layer" is.
    const auto distance = std::min(edit_distance(name, candidate),
                                   edit_distance(last_part(name), last_part(candidate)) + 1);
    if (distance <= best_distance && (best.empty() || distance < best_distance)) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

ConfigTree ConfigTree::from_json(const Json& values, std::string source) {
  ConfigTree tree;
  const auto walk = [&](auto&& self, const Json& object, const std::string& prefix) -> void {
    for (const auto& [key, value] : object.items()) {
      if (value.is_object()) {
        self(self, value, prefix + key + ".");
      } else {
        tree.put({prefix + key, source, value.dump()});
      }
    }
  };
  walk(walk, values, "");
  return tree;
}

void ConfigTree::put(Entry entry) {
  const auto same = [&](const Entry& other) { return other.name == entry.name; };
  if (const auto old = std::find_if(entries_.begin(), entries_.end(), same);
      old != entries_.end()) {
    *old = std::move(entry);
  } else {
    entries_.push_back(std::move(entry));
  }
}

bool ConfigTree::contains(std::string_view dotted) const {
  return std::any_of(entries_.begin(), entries_.end(),
                     [&](const Entry& entry) { return entry.name == dotted; });
}

void ConfigTree::read_into(const std::vector<Field>& fields) const {
  for (const auto& entry : entries_) {
    const auto field = std::find_if(fields.begin(), fields.end(),
                                    [&](const Field& f) { return f.name == entry.name; });
    if (field == fields.end()) {
      std::vector<std::string> names(fields.size());
      std::transform(fields.begin(), fields.end(), names.begin(),
                     [](const Field& f) { return f.name; });
      const auto near = nearest_name(entry.name, names);
      fail(ExitCode::kUsage, "{}: unknown key {}; {}", entry.place, entry.name,
           near.empty() ? std::string("--dump-config lists the known ones")
                        : fmt::format("did you mean {}?", near));
    }
    const auto value = Json::parse(entry.json);
    if (!std::visit([&](auto* target) { return assign(*target, value); }, field->value)) {
      fail(ExitCode::kUsage, "{}: {} must be {}, got {}", entry.place, entry.name,
           type_name(field->value), entry.json);
    }
    if (!field->choices.empty()) {
      const auto& word = *std::get<std::string*>(field->value);
      if (std::find(field->choices.begin(), field->choices.end(), word) == field->choices.end()) {
        fail(ExitCode::kUsage, "{}: {} must be one of {}, got \"{}\"", entry.place, entry.name,
             join(field->choices), word);
      }
    }
  }
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
