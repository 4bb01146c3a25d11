#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "performer/core/json.h"

namespace performer {

using Json = nlohmann::ordered_json;

JsonView::JsonView(const Json& value, std::string file, ExitCode failure)
    : value_(&value), file_(std::move(file)), failure_(failure) {}

JsonView JsonView::member(const Json& value, std::string place) const {
  JsonView view(value, file_, failure_);
  view.place_ = std::move(place);
  return view;
}

void JsonView::refuse(std::string_view required) const {
  constexpr std::size_t kShown = 100;
  auto text = value_->dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > kShown) text = text.substr(0, kShown) + "...";
  fail(failure_, "{}: {} must be {}, got {}", file_, place_.empty() ? "the whole" : place_,
       required, text);
}

JsonView JsonView::at(std::string_view key) const {
  if (!value_->is_object()) refuse("an object");
  std::string place = (place_.empty() ? "" : place_ + ".") + std::string(key);
  const auto found = value_->find(std::string(key));
  if (found == value_->end()) fail(failure_, "{}: {} is missing", file_, place);
  return member(*found, std::move(place));
}

JsonView JsonView::at(std::size_t index) const {
  if (index >= size()) refuse(fmt::format("a list of more than {} values", index));
  return member((*value_)[index], fmt::format("{}[{}]", place_, index));
}

std::size_t JsonView::size() const {
  if (!value_->is_array()) refuse("a list");
  return value_->size();
}

bool JsonView::contains(std::string_view key) const {
  return value_->is_object() && value_->contains(std::string(key));
}

std::int64_t JsonView::integer(std::int64_t least, std::int64_t most) const {
  const bool whole = value_->is_number_integer() &&
                     !(value_->is_number_unsigned() && value_->get<std::uint64_t>() > INT64_MAX);
  const std::int64_t value = whole ? value_->get<std::int64_t>() : 0;
  if (whole && value >= least && value <= most) return value;
  if (least == INT64_MIN && most == INT64_MAX) refuse("a whole number");
  refuse(most == INT64_MAX ? fmt::format("a whole number of at least {}", least)
                           : fmt::format("a whole number from {} to {}", least, most));
}

double JsonView::number() const {
  if (!value_->is_number()) refuse("a number");
  return value_->get<double>();
}

bool JsonView::boolean() const {
  if (!value_->is_boolean()) refuse("true or false");
  return value_->get<bool>();
}

const std::string& JsonView::string() const {
  if (!value_->is_string()) refuse("a string");
  return value_->get_ref<const std::string&>();
}

std::vector<std::string> JsonView::strings() const {
  std::vector<std::string> items(size());
  for (std::size_t i = 0; i < items.size(); ++i) items[i] = at(i).string();
  return items;
}

std::vector<std::int64_t> JsonView::integers(std::int64_t least) const {
  std::vector<std::int64_t> items(size());
  for (std::size_t i = 0; i < items.size(); ++i) items[i] = at(i).integer(least);
  return items;
}

}  // namespace performer
