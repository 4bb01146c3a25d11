#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "performer/run/tensor_file.h"

namespace performer::fit {

/// A fit on disk while it runs, so that one that was killed goes on where it was: one safetensors
/// file, replaced whole by every save. What is there after a kill or a full disk is the save before.
class Unfinished {
 public:
  struct Place {
    std::string stage;
    std::int64_t step = 0;  // steps that were taken
    double first_loss = 0;  // of the stage
  };

  /// `identity` says, key by key, what the fit is of. A file that is there must be of the same: else
  /// kUsage, with what differs. kCorrupt where it is damaged. With `restart` it goes away instead.
  Unfinished(std::filesystem::path path, const nlohmann::ordered_json& identity, bool restart);

  const std::filesystem::path& path() const { return path_; }
  /// Where the fit was, until load() is called; nothing where it begins.
  const std::optional<Place>& place() const { return place_; }
  /// Overwrites `targets` with what was saved: the same names and shapes, else kCorrupt.
  void load(const run::NamedTensors& targets);

  void save(const Place& place, const run::NamedTensors& tensors) const;
  /// Takes the file away: what was fitted is where it belongs.
  void remove() const;

 private:
  std::filesystem::path path_;
  std::string identity_;
  std::optional<Place> place_;
  run::NamedTensors saved_;
};

}  // namespace performer::fit
