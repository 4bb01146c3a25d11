#include <nlohmann/json.hpp>

#include "performer/data/hf/json_fields.h"
#include "performer/data/hf/step_json.h"

namespace performer::data::hf {
namespace {

void append_ids(std::vector<std::int64_t>& ids, const std::vector<std::int64_t>& more) {
  ids.insert(ids.end(), more.begin(), more.end());
}

// ["[SEP]", 102]
std::int64_t id_of(const JsonView& pair) {
  if (pair.size() != 2) pair.refuse("a token and its id");
  return pair.at(std::size_t{1}).integer(0);
}

Template read_single(const JsonView& json) {
  const JsonView parts = json.at("single");
  Template around;
  bool behind = false;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const JsonView part = parts.at(i);
    if (part.contains("Sequence")) {
      if (behind || part.at("Sequence").at("id").string() != "A") part.refuse("one Sequence A");
      behind = true;
      continue;
    }
    const std::string& token = part.at("SpecialToken").at("id").string();
    const auto ids = json.at("special_tokens").at(token).at("ids").integers(0);
    append_ids(behind ? around.after : around.before, ids);
  }
  if (!behind) parts.refuse("a list with a Sequence A");
  return around;
}

}  // namespace

Template read_template(const JsonView& json) {
  if (json.value().is_null()) return {};
  const JsonView type = json.at("type");
  const std::string& name = type.string();
  if (name == "ByteLevel") return {};
  if (name == "BertProcessing" || name == "RobertaProcessing") {
    return {{id_of(json.at("cls"))}, {id_of(json.at("sep"))}};
  }
  if (name == "TemplateProcessing") return read_single(json);
  if (name != "Sequence") {
    type.refuse(
        "TemplateProcessing, BertProcessing, RobertaProcessing, ByteLevel or Sequence (no other is "
        "supported)");
  }
  Template around;
  const JsonView parts = json.at("processors");
  for (std::size_t i = 0; i < parts.size(); ++i) {
    Template outer = read_template(parts.at(i));
    append_ids(outer.before, around.before);
    around.before = std::move(outer.before);
    append_ids(around.after, outer.after);
  }
  return around;
}

}  // namespace performer::data::hf
