#include "performer/pretrained/match.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "performer/core/error.h"
#include "performer/core/safe_text.h"
#include "performer/core/size.h"

namespace performer::pretrained {
namespace {

using safetensors::Dtype;

// In memory they lie beside the model when it is written again.
constexpr std::int64_t kMostKept = std::int64_t{1} << 25;

void check_type(const FileTensor& tensor) {
  const auto dtype = tensor.entry->dtype;
  if (dtype == Dtype::kF32 || dtype == Dtype::kF16 || dtype == Dtype::kBF16) return;
  fail(ExitCode::kBadInput, "{}: tensor {} is {}; weights must be F32, F16 or BF16", tensor.file,
       shown(tensor.entry->name), name_of(dtype));
}

void check_shape(const FileTensor& tensor, const std::vector<std::int64_t>& shape) {
  if (tensor.entry->shape == shape) return;
  fail(ExitCode::kCorrupt, "{}: tensor {} is [{}], by config.json it must be [{}]", tensor.file,
       shown(tensor.entry->name), fmt::join(tensor.entry->shape, ", "), fmt::join(shape, ", "));
}

// Own name -> tensor. Other names of one that is there already become twins.
using Found = std::map<std::string, FileTensor>;

Found sort_names(const Description& d, const TensorFolder& folder, Match& match) {
  Found found;
  for (const auto& [name, tensor] : folder.tensors()) {
    const auto own = d.own_name(name);
    if (d.ignores(own)) continue;
    const auto [there, is_new] = found.emplace(own, tensor);
    if (is_new) continue;
    check_type(tensor), check_type(there->second);
    check_shape(tensor, there->second.entry->shape);
    match.twins.emplace_back(there->second, tensor);
  }
  return found;
}

void take_kept(const Description& d, Found& found, Match& match) {
  Size total;
  for (const auto& name : d.kept) {
    const auto tensor = found.find(name);
    if (tensor == found.end()) continue;
    check_type(tensor->second);
    total += tensor->second.entry->end - tensor->second.entry->begin;
    if (total.value() > kMostKept) {
      fail(ExitCode::kCorrupt, "{}: tensor {} is larger than any model has it", tensor->second.file,
           shown(tensor->second.entry->name));
    }
    match.kept.emplace_back(name, tensor->second);
    found.erase(tensor);
  }
}

}  // namespace

Match match_tensors(const Description& d, const TensorFolder& folder) {
  Match match;
  auto found = sort_names(d, folder, match);
  for (const auto& place : d.places) {
    const auto tensor = found.find(place.name);
    if (tensor == found.end()) {
      fail(ExitCode::kCorrupt, "{}: tensor {} is missing, which a {} has",
           folder.files().front().string(), shown(d.file_name(place.name)), d.architecture);
    }
    check_type(tensor->second);
    check_shape(tensor->second, place.shape);
    match.places.emplace_back(&place, tensor->second);
    found.erase(tensor);
  }
  take_kept(d, found, match);
  if (!found.empty()) {
    const auto& [name, tensor] = *found.begin();
    fail(ExitCode::kCorrupt, "{}: tensor {}{} belongs to no {}", tensor.file,
         shown(tensor.entry->name),
         found.size() == 1 ? "" : fmt::format(" (and {} more)", found.size() - 1), d.architecture);
  }
  return match;
}

}  // namespace performer::pretrained
