#include "performer/cli/sequence_checks.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "performer/core/error.h"
#include "performer/models/length_limit.h"

namespace performer::cli {

void check_new_output(const std::string& path, bool overwrite) {
  std::error_code unknown;
  if (!overwrite && std::filesystem::exists(std::filesystem::symlink_status(path, unknown))) {
    fail(ExitCode::kUsage, "{}: already exists; name another file, or pass --overwrite", path);
  }
}

void check_lengths(const infer::LoadedModel& loaded, const data::WholeSequences& all,
                   const std::string& input, std::int64_t length) {
  const auto limit = models::length_limit(loaded.recipe.model);
  if (limit == 0) return;
  if (length > limit) {
    fail(ExitCode::kUsage, "--length: the model reads {} tokens at most, got {}", limit, length);
  }
  if (length > 0) return;
  std::int64_t longer = 0, longest = 0;
  for (std::int64_t i = 0; i < all.count(); ++i) {
    if (all.tokens(i) > limit) ++longer;
    longest = std::max(longest, all.tokens(i));
  }
  if (longer == 0) return;
  fail(ExitCode::kBadInput,
       "{}: {} of {} sequences are longer than the {} tokens that the model reads, the longest has "
       "{}; {}",
       input, longer, all.count(), limit, longest,
       length == kWholeOnly ? "score parts of them, or take a model with rotary positions"
                            : fmt::format("--length {} takes their beginnings", limit));
}

}  // namespace performer::cli
