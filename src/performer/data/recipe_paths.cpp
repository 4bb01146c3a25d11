#include "performer/data/recipe_paths.h"

#include <filesystem>

#include "performer/core/error.h"
#include "performer/core/log.h"
#include "performer/core/safe_text.h"

namespace performer::data {
namespace {

namespace fs = std::filesystem;

bool is_there(const std::string& item) {
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
  if (!is_there(beside)) return;
  if (is_there(item)) {
    log_info("data.{}: {} is read, beside the recipe; {} in the working folder is not", key, beside,
             item);
  } else {
    log_info("data.{}: {} is read, beside the recipe", key, beside);
  }
  item = beside;
}

}  // namespace

void look_beside_recipe(DataConfig& config, const std::string& recipe,
                        const std::function<bool(std::string_view key)>& given) {
  const fs::path folder = fs::path(recipe).parent_path();
  std::error_code unknown;
  const bool elsewhere = !folder.empty() && !fs::equivalent(folder, ".", unknown);
  const auto look = [&](std::string& item, std::string_view key) {
    check_text(item, key);
    if (elsewhere && !given(key)) look_beside(item, folder, key);
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
