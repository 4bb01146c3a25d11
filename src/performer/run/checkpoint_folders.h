#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

/// The folders that a checkpoint is saved through. Every failure is an Error that names the path.
namespace performer::run {

void make_folder(const std::filesystem::path& folder);
void remove_tree(const std::filesystem::path& path);
std::vector<std::filesystem::path> entries_of(const std::filesystem::path& folder);
/// Steps of the checkpoints in `folder`, ascending, verified or not.
std::vector<std::int64_t> saved_steps(const std::filesystem::path& folder);

/// The name under which this process writes a checkpoint.
std::string temporary_name(std::int64_t step);
/// The name of a checkpoint on its way out, where two folders cannot be exchanged at once.
std::string replaced_name(std::int64_t step);

/// Clears `folder` of what killed saves have left under these two names, and of nothing else: a
/// temporary folder goes, a replaced checkpoint comes back if its successor has not arrived.
void clear_leftovers(const std::filesystem::path& folder);

}  // namespace performer::run
