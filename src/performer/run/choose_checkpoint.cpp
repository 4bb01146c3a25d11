#include "performer/run/choose_checkpoint.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "performer/core/error.h"
#include "performer/core/file.h"
#include "performer/run/checkpoint_folders.h"

namespace performer::run {
namespace {

namespace fs = std::filesystem;

// For advice, and for what the user asks by number; a folder that cannot be listed has none.
std::vector<std::int64_t> steps_of(const fs::path& run) {
  try {
    return saved_steps(run / "checkpoints");
  } catch (const Error&) {
    return {};
  }
}

// 20, or step-000000020 as messages show it.
std::optional<std::int64_t> number_of(std::string_view word) {
  if (const auto step = parse_step_name(std::string(word))) return step;
  std::int64_t number = 0;
  const auto [rest, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  const bool whole = error == std::errc() && rest == word.data() + word.size();
  return whole && number >= 0 ? std::optional(number) : std::nullopt;
}

// No other one is taken unasked, but what could be is said.
Checkpoint open_or_advise(const fs::path& run, const std::string& pointer) {
  try {
    return open_pointed(run, pointer);
  } catch (const Error& error) {
    const auto steps = steps_of(run);
    if (error.code() != ExitCode::kCorrupt || steps.empty()) throw;
    fail(error.code(), "{}; take another one by --checkpoint: there are {}", error.what(),
         fmt::join(steps, ", "));
  }
}

ChosenCheckpoint pointed(const fs::path& run, const std::string& pointer) {
  ChosenCheckpoint chosen{open_or_advise(run, pointer), pointer, {}};
  if (pointer == "latest" || !is_there(run / "latest")) return chosen;
  // Only said, so a damaged file of a checkpoint that is not taken does no harm.
  const auto steps = steps_of(run);
  if (!steps.empty() && steps.back() > chosen.checkpoint.step()) chosen.latest_step = steps.back();
  return chosen;
}

ChosenCheckpoint of_step(const fs::path& run, std::int64_t step) {
  const auto steps = steps_of(run);
  if (!std::binary_search(steps.begin(), steps.end(), step)) {
    fail(ExitCode::kBadInput, "{}: has no checkpoint of step {}; there are {}", run.string(), step,
         fmt::join(steps, ", "));
  }
  ChosenCheckpoint chosen{Checkpoint::open(checkpoint_folder(run, step)), "step", {}};
  if (steps.back() > step) chosen.latest_step = steps.back();
  return chosen;
}

ChosenCheckpoint of_run(const fs::path& run, const std::string& which) {
  if (const auto step = number_of(which)) return of_step(run, *step);
  const bool best = is_there(run / "best");
  if (which == "best" && !best) {
    fail(ExitCode::kBadInput,
         "{}: no validation has named a best checkpoint; take --checkpoint latest", run.string());
  }
  if (best && which != "latest") return pointed(run, "best");
  if (!is_there(run / "latest")) {
    fail(ExitCode::kCorrupt, "{}: missing, though there are checkpoints",
         (run / "latest").string());
  }
  return pointed(run, "latest");
}

}  // namespace

ChosenCheckpoint choose_checkpoint(const fs::path& path, const std::string& which) {
  if (!which.empty() && which != "best" && which != "latest" && !number_of(which)) {
    fail(ExitCode::kUsage, "--checkpoint: must be best, latest or the number of a step, got {}",
         which);
  }
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) {
    fail(ExitCode::kBadInput, "{}: no such folder; name a run or a checkpoint folder",
         path.string());
  }
  if (is_there(path / "best") || is_there(path / "latest") || !steps_of(path).empty()) {
    return of_run(path, which);
  }
  if (!is_there(path / "manifest.json") && !is_there(path / "model.safetensors")) {
    fail(ExitCode::kBadInput, "{}: neither a checkpoint nor a run that has saved one",
         path.string());
  }
  if (!which.empty()) {
    fail(ExitCode::kUsage,
         "--checkpoint {}: {} is a checkpoint itself; name the folder of its run to choose", which,
         path.string());
  }
  return {Checkpoint::open(path), {}, {}};
}

std::string ChosenCheckpoint::text() const {
  std::string text = fmt::format("{}: step {}", checkpoint.folder().string(), checkpoint.step());
  if (name == "best") text += ", the best of validation";
  if (name == "latest") text += ", the latest";
  if (latest_step) {
    text += fmt::format("; the run went on to step {} (--checkpoint latest)", *latest_step);
  }
  return text;
}

Checkpoint resolve_checkpoint(const fs::path& path) {
  return choose_checkpoint(path, {}).checkpoint;
}

}  // namespace performer::run
