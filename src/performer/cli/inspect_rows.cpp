#include "performer/cli/inspect_rows.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "performer/core/error.h"
#include "performer/data/dataset.h"
#include "performer/data/open_sequences.h"
#include "performer/models/length_limit.h"

namespace performer::cli {
namespace {

at::Tensor row_of(std::vector<std::int64_t>& tokens, std::int64_t length, at::Device device) {
  return at::from_blob(tokens.data(), {length}, at::kLong).clone().to(device);
}

// Number i of `count` that are spread evenly over `all`.
std::int64_t spread(std::int64_t i, std::int64_t count, std::int64_t all) {
  return all / count * i + all % count * i / count;
}

std::string told(std::size_t rows, std::int64_t length, const std::string& where) {
  return fmt::format("{} {} of at most {} tokens of {}", rows, rows == 1 ? "row" : "rows", length,
                     where);
}

SampleRows rows_of_file(const RowOptions& o, const infer::LoadedModel& loaded, std::int64_t length,
                        at::Device device) {
  const auto all = data::open_sequences(o.path, loaded.space);
  const auto count = std::min(o.count, all->count());
  SampleRows sample;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto which = spread(i, count, all->count());
    std::vector<std::int64_t> tokens(
        static_cast<std::size_t>(std::min(all->tokens(which), length)));
    if (tokens.empty()) continue;
    all->read(which, 0, tokens);
    sample.rows.push_back(row_of(tokens, std::ssize(tokens), device));
  }
  if (sample.rows.empty()) fail(ExitCode::kBadInput, "{}: no sequence has a token", o.path);
  sample.about = told(sample.rows.size(), length, o.path);
  return sample;
}

SampleRows rows_of_run(const RowOptions& o, const infer::LoadedModel& loaded, std::int64_t length,
                       at::Device device) {
  auto config = loaded.recipe.data;
  if (loaded.recipe.converted() || !has_split(config, data::Split::kValid)) {
    return {{}, "the model has no validation data of its own; name some: --data FILE"};
  }
  config.length = std::min(config.length, length);
  SampleRows sample;
  try {
    const auto rows = data::open_dataset(config, data::Split::kValid, loaded.space);
    const auto count = std::min(o.count, rows->size());
    const auto size = static_cast<std::size_t>(rows->length());
    for (std::int64_t i = 0; i < count; ++i) {
      std::vector<std::int64_t> tokens(size), targets(size), other(size);
      const auto info = rows->fill({static_cast<std::uint64_t>(config.seed), 0,
                                    spread(i, count, rows->size()), data::Use::kEvaluation},
                                   {tokens, targets, other});
      if (info.length > 0) sample.rows.push_back(row_of(tokens, info.length, device));
    }
  } catch (const Error& error) {
    return {{}, fmt::format("{}; name other data: --data FILE", error.what())};
  }
  if (sample.rows.empty()) return {{}, "the validation data have no tokens"};
  const bool masked = config.objective == "masked";
  sample.about =
      told(sample.rows.size(), config.length,
           fmt::format("the run's own validation data{}", masked ? ", masked as in training" : ""));
  return sample;
}

}  // namespace

SampleRows open_rows(const RowOptions& o, const infer::LoadedModel& loaded, at::Device device) {
  const auto limit = models::length_limit(loaded.recipe.model);
  const auto length = limit > 0 ? std::min(limit, o.length) : o.length;
  if (!o.path.empty()) return rows_of_file(o, loaded, length, device);
  return rows_of_run(o, loaded, length, device);
}

}  // namespace performer::cli
