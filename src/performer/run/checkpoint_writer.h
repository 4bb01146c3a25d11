#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "performer/run/tensor_file.h"

namespace performer::run {

struct CheckpointContent {
  NamedTensors model;
  NamedTensors trainer;
  std::string config_json;
  std::string trainer_json;
  std::map<std::string, std::string> tokenizer;  // file name -> bytes
  NamedTensors kept = {};  // of a converted model, for its export alone; empty: no such file
  std::map<std::string, std::string> reports = {};  // for people: named report.*, name -> bytes
};

/// Writes the files of a checkpoint and its manifest.json into an empty folder, hashing on the way;
/// durable on return. Returns the hash of the manifest.
std::string write_checkpoint(const std::filesystem::path& folder, std::int64_t step,
                             const CheckpointContent& content);

}  // namespace performer::run
