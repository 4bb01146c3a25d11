#include "performer/fit/unfinished.h"

#include <ATen/ATen.h>

#include <charconv>
#include <nlohmann/json.hpp>
#include <utility>

#include "performer/core/error.h"
#include "performer/core/safe_text.h"
#include "performer/core/sha256.h"

namespace performer::fit {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using Place = Unfinished::Place;

constexpr std::string_view kRemedy = "--restart begins anew";

std::string digest_of(const safetensors::Metadata& metadata, const run::NamedTensors& tensors) {
  Sha256 hash;
  for (const auto& [key, value] : metadata) {
    if (key != "digest") hash.update(fmt::format("{} {}\n", key, value));
  }
  for (const auto& [name, tensor] : tensors) {
    const at::Tensor host = tensor.detach().to(at::kCPU).contiguous();
    hash.update(fmt::format("{} {}\n", name, host.nbytes()));
    hash.update(std::span(static_cast<const std::byte*>(host.const_data_ptr()), host.nbytes()));
  }
  return hash.finish();
}

// In the order that the file has them, whatever it is.
run::NamedTensors sorted(run::NamedTensors tensors) {
  std::ranges::sort(tensors, {}, [](const auto& named) { return named.first; });
  return tensors;
}

template <class Number>
bool read(const safetensors::Metadata& metadata, const char* key, Number& out) {
  const auto found = metadata.find(key);
  if (found == metadata.end()) return false;
  const auto* end = found->second.data() + found->second.size();
  const auto [rest, error] = std::from_chars(found->second.data(), end, out);
  return error == std::errc() && rest == end;
}

std::string text_of(const safetensors::Metadata& metadata, const char* key) {
  const auto found = metadata.find(key);
  return found == metadata.end() ? "" : found->second;
}

// "rows 8, now 4": what of another fit is other than asked for.
std::string differences(const std::string& before, const std::string& now) {
  const Json a = Json::parse(before, nullptr, /*allow_exceptions=*/false), b = Json::parse(now);
  if (!a.is_object()) return "another command";
  std::string text;
  for (const auto& [key, value] : b.items()) {
    if (a.contains(key) && a[key] == value) continue;
    const bool said = value.is_number() && a.contains(key) && a[key].is_number();
    text += text.empty() ? "" : ", ";
    text += said ? fmt::format("{} {}, now {}", key, a[key].dump(), value.dump())
                 : fmt::format("another {}", key);
  }
  return text.empty() ? "another command" : text;
}

[[noreturn]] void fail_damaged(const fs::path& path, std::string_view why) {
  fail(ExitCode::kCorrupt, "{}: the unfinished fit is damaged ({}); {}", path.string(), why,
       kRemedy);
}

}  // namespace

Unfinished::Unfinished(fs::path path, const Json& identity, bool restart)
    : path_(std::move(path)), identity_(identity.dump()) {
  if (restart) remove();
  if (!is_there(path_)) return;
  const safetensors::Metadata metadata = safetensors::Reader(path_).metadata();
  const auto before = text_of(metadata, "identity");
  if (before.empty()) {
    fail(ExitCode::kUsage, "{}: is there and is no unfinished fit; move it away", path_.string());
  }
  saved_ = sorted(run::load_tensors(path_));
  if (digest_of(metadata, saved_) != text_of(metadata, "digest")) {
    fail_damaged(path_, "its hash is another");
  }
  if (before != identity_) {
    fail(ExitCode::kUsage, "{}: an unfinished fit of {}; name another folder, or {}",
         path_.string(), differences(before, identity_), kRemedy);
  }
  Place place{text_of(metadata, "stage")};
  if (!read(metadata, "step", place.step) || !read(metadata, "first_loss", place.first_loss)) {
    fail_damaged(path_, "no step");
  }
  place_ = place;
}

void Unfinished::load(const run::NamedTensors& targets) {
  const at::NoGradGuard no_grad;
  const auto wanted = sorted(targets);
  bool same = wanted.size() == saved_.size();
  for (std::size_t i = 0; same && i < wanted.size(); ++i) {
    same = wanted[i].first == saved_[i].first &&
           wanted[i].second.sizes() == saved_[i].second.sizes() &&
           wanted[i].second.scalar_type() == saved_[i].second.scalar_type();
  }
  if (!same) fail_damaged(path_, "other tensors");
  for (std::size_t i = 0; i < wanted.size(); ++i) wanted[i].second.copy_(saved_[i].second);
  saved_.clear(), place_.reset();
}

void Unfinished::save(const Place& place, const run::NamedTensors& tensors) const {
  const auto ordered = sorted(tensors);
  safetensors::Metadata metadata = {{"identity", identity_},
                                    {"stage", place.stage},
                                    {"step", std::to_string(place.step)},
                                    {"first_loss", fmt::format("{}", place.first_loss)}};
  metadata["digest"] = digest_of(metadata, ordered);
  run::save_tensors(path_, ordered, metadata);
}

void Unfinished::remove() const {
  std::error_code failed;
  fs::remove(path_, failed);
  if (failed) fail_write(path_, failed.value());
}

}  // namespace performer::fit
