#include "performer/run/recipe_file.h"

#include <filesystem>
#include <vector>

#include "performer/core/error.h"
#include "performer/core/safe_text.h"

namespace performer::run {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostBases = 8;

// The file that `base` means, which is none of those before it.
std::string base_of(const std::string& path, const ConfigTree::Text& base,
                    const std::vector<std::string>& before) {
  auto file = (fs::path(path).parent_path() / base.text).lexically_normal().string();
  std::error_code unknown;
  if (!fs::is_regular_file(file, unknown)) {
    fail(ExitCode::kUsage,
         "{}: base {} is not there; name a recipe by its path from this file's "
         "folder",
         base.place, shown(file));
  }
  for (const auto& other : before) {
    if (fs::equivalent(file, other, unknown)) {
      fail(ExitCode::kUsage, "{}: base {} comes back to {}; take it out", base.place, shown(file),
           shown(other));
    }
  }
  if (before.size() > kMostBases) {
    fail(ExitCode::kUsage, "{}: base {} is the base of more than {} recipes in a row", base.place,
         shown(file), kMostBases);
  }
  return file;
}

}  // namespace

ConfigTree read_recipe_file(const std::string& path) {
  std::vector<std::string> files{path};
  std::vector<ConfigTree> trees{ConfigTree::from_toml_file(path)};
  while (const auto base = trees.back().take_text("base")) {
    files.push_back(base_of(files.back(), *base, files));
    trees.push_back(ConfigTree::from_toml_file(files.back()));
  }
  ConfigTree tree = std::move(trees.back());
  for (auto own = trees.rbegin() + 1; own != trees.rend(); ++own) tree.put_over(*own);
  return tree;
}

}  // namespace performer::run
