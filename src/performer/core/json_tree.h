#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "performer/core/json.h"

namespace performer {

/// The events of a JSON text as a tree of values.
class JsonTree final : public JsonEvents {
 public:
  void null() override { put(nullptr); }
  void boolean(bool value) override { put(value); }
  void integer(std::int64_t value) override { put(value); }
  void large_integer(std::uint64_t value) override { put(value); }
  void number(double value, const std::string& /*text*/) override { put(value); }
  void string(std::string value) override { put(std::move(value)); }
  void key(std::string name) override { key_ = std::move(name); }
  void start_object() override { open_.push_back(put(Json::object())); }
  void start_array() override { open_.push_back(put(Json::array())); }
  void end_object() override { open_.pop_back(); }
  void end_array() override { open_.pop_back(); }

  nlohmann::ordered_json take() { return std::move(root_); }

 private:
  using Json = nlohmann::ordered_json;

  // A parent takes nothing new while a child is open, so that pointers to the last ones stay.
  Json* put(Json value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Json& parent = *open_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return &parent.back();
    }
    // emplace_back instead of [], which would search all keys for each one.
    auto& members = parent.get_ref<Json::object_t&>();
    members.emplace_back(std::move(key_), std::move(value));
    return &members.back().second;
  }

  Json root_;
  std::vector<Json*> open_;
  std::string key_;
};

}  // namespace performer
