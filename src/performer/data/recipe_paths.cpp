#include "performer/data/recipe_paths.h"

#include <filesystem>

#include "performer/core/error.h"
#include "performer/core/log.h"
#include "performer/core/safe_text.h"

namespace performer::data {
namespace {

namespace fs = std::filesystem;

bool is_found(const std::string& item) {
  std::error_code unknown;
  return fs::exists(item, unknown) || (is_pattern(item) && matches_any(item));
}

// The recipe becomes the config.json of checkpoints.
void check_text(const std::string& item, std::string_view key) {
  if (is_utf8(item)) return;
  fail(ExitCode::kUsage, "data.{}: {} is not UTF-8; rename the file, or link it under another name",
       key, shown(item));
}

void look_beside(std::string& item, const fs::path& folder, std::string_view key) {
  if (item.empty() || item == "-" || fs::path(item).is_absolute()) return;
  const std::string beside = (folder / item).lexically_normal().string();
  if (!is_found(beside)) return;
  if (is_found(item)) {
    log_info("data.{}: {} is read, beside the recipe; {} in the working folder is not", key, beside,
             item);
  } else {
    log_info("data.{}: {} is read, beside the recipe", key, beside);
  }
  item = beside;
}

// Where a path of the recipe was looked for, and what else it may have meant.
std::string not_there(const std::string& item, const fs::path& folder) {
  std::error_code unknown;
  const bool elsewhere =
      !folder.empty() && !fs::equivalent(folder, ".", unknown) && !fs::path(item).is_absolute();
  auto text = fmt::format("{} is not there", shown(item));
  if (elsewhere) {
    text += fmt::format(": neither in the working folder nor beside the recipe, in {}",
                        folder.string());
  }
  if (item.find(',') != std::string::npos) text += "; several are a list, [\"a\", \"b\"]";
  return text;
}

}  // namespace

void check_named_files(const DataConfig& config, const std::string& recipe, bool validates) {
  if (config.task == "recall") return;
  const fs::path folder = fs::path(recipe).parent_path();
  const auto missing = [&](std::string_view key, const PathList& list, const auto& tell) {
    for (const auto& item : list.items) {
      if (item.empty() || item == "-" || is_found(item)) continue;
      tell(fmt::format("data.{}: {}", key, not_there(item, folder)));
    }
  };
  const auto refuse = [](const std::string& text) { fail(ExitCode::kBadInput, "{}", text); };
  const auto warn = [](const std::string& text) {
    log_warning("{}; `eval` will ask for it", text);
  };
  missing("train", config.train, refuse);
  if (validates) missing("valid", config.valid, refuse);
  missing("test", config.test, warn);
  missing("ood", config.ood, warn);
}

void look_beside_recipe(DataConfig& config,
                        const std::function<std::string(std::string_view key)>& file_of) {
  const auto look = [&](std::string& item, std::string_view key) {
    check_text(item, key);
    const fs::path folder = fs::path(file_of(key)).parent_path();
    std::error_code unknown;
    if (!folder.empty() && !fs::equivalent(folder, ".", unknown)) look_beside(item, folder, key);
  };
  for (const auto& [key, list] :
       {std::pair{"train", &config.train}, std::pair{"valid", &config.valid},
        std::pair{"test", &config.test}, std::pair{"ood", &config.ood}}) {
    for (auto& item : list->items) look(item, key);
  }
  look(config.split_table, "split_table");
  look(config.documents, "documents");
  if (config.tokenizer != "bytes") look(config.tokenizer, "tokenizer");
}

}  // namespace performer::data
