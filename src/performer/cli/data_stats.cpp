#include <fmt/format.h>

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <unordered_set>
#include <vector>

#include "performer/cli/data.h"
#include "performer/cli/data_table.h"
#include "performer/core/error.h"
#include "performer/core/log.h"
#include "performer/data/alphabet.h"
#include "performer/data/build.h"
#include "performer/data/content_hash.h"
#include "performer/data/path_list.h"
#include "performer/data/split_sources.h"
#include "performer/data/statistics.h"
#include "performer/data/token_space.h"

namespace performer::cli {
namespace {

struct StatsOptions {
  std::vector<std::string> files;
  std::string split_table;
  bool json = false;
};

struct Part {
  std::string name;
  data::SequenceStatistics statistics{data::alphabet::kVocabulary};
};

struct Result {
  std::vector<Part> parts;  // the first one's letters are the baseline
  data::FastaCounts counts;
};

// As the keys of data take them: files, folders, patterns.
std::vector<std::string> found(const StatsOptions& o) {
  data::PathList list;
  list.items = o.files;
  return data::expand_paths(list, "protein", "stats");
}

Result count_files(const std::vector<std::string>& files) {
  Result result;
  result.parts.reserve(files.size());
  for (const auto& file : files) {
    Part& part = result.parts.emplace_back();
    part.name = file;
    std::unordered_set<data::ContentHash, data::ContentHashHasher> ids;
    result.counts += data::for_sequences(file, [&](const data::FastaRecord& record) {
      part.statistics.add(record.tokens);
      // Built files keep no ids.
      if (!record.header.empty() && !ids.insert(data::content_hash(record.id())).second)
        ++result.counts.duplicate_ids;
    });
  }
  return result;
}

Result count_splits(const StatsOptions& o) {
  const data::SplitTable table(o.split_table);
  Result result;
  for (const char* name : {"train", "valid", "test", "ood", "all"}) {
    result.parts.emplace_back().name = name;
  }
  for (const auto& file : found(o)) {
    result.counts += data::for_sequences(file, [&](const data::FastaRecord& record) {
      const auto found = table.find(record.id());
      for (Part& part : result.parts) {
        const bool inside = found && data::name_of(*found) == part.name;
        if (inside || part.name == "all") part.statistics.add(record.tokens);
      }
    });
  }
  std::erase_if(result.parts, [](const Part& p) { return p.statistics.lengths().count == 0; });
  return result;
}

nlohmann::ordered_json letters_of(const Part& part) {
  nlohmann::ordered_json letters = nlohmann::ordered_json::object();
  const auto& counts = part.statistics.counts();
  for (std::size_t t = data::alphabet::kFirstLetter; t < counts.size(); ++t) {
    letters[data::alphabet::name_of(static_cast<std::int64_t>(t))] = counts[t];
  }
  return letters;
}

// Of a part, against the letters of the first one. Files hold no EOS: it stands apart.
data::Baselines baselines_of(const Result& result, const Part& part) {
  return data::baselines_of(data::protein_space(), data::Ends::kApart,
                            result.parts.front().statistics.counts(), part.statistics.counts());
}

void print_json(const Result& result) {
  nlohmann::ordered_json parts = nlohmann::ordered_json::array();
  for (const Part& part : result.parts) {
    parts.push_back({{"name", part.name},
                     {"lengths", to_json(part.statistics.lengths())},
                     {"letters", letters_of(part)},
                     {"empirical", to_json(baselines_of(result, part).empirical)}});
  }
  const nlohmann::ordered_json json = {
      {"parts", parts},
      {"uniform", to_json(baselines_of(result, result.parts.front()).uniform)},
      {"read", to_json(result.counts)}};
  fmt::print("{}", json_line(json));
}

void print_text(const Result& result) {
  fmt::print("{}", length_heading());
  for (const Part& part : result.parts) {
    fmt::print("{}", length_row(part.name, part.statistics.lengths()));
  }
  const auto print = [](const std::string& name, const data::Baseline& b) {
    fmt::print("{:<24} {:>8.2f} % {:>14.2f}\n", name, 100 * b.accuracy, b.perplexity);
  };
  fmt::print("\n{:<24} {:>10} {:>14}\n", "baseline", "accuracy", "perplexity");
  print("uniform", baselines_of(result, result.parts.front()).uniform);
  for (const Part& part : result.parts) print(part.name, baselines_of(result, part).empirical);
  fmt::print("letters alone, without EOS; frequencies of: {}\n", result.parts.front().name);
  const std::string notes = data::mended(result.counts);
  if (!notes.empty()) log_info("{}", notes);
}

void run_stats(const StatsOptions& o) {
  const Result result = o.split_table.empty() ? count_files(found(o)) : count_splits(o);
  if (result.parts.empty()) {
    fail(ExitCode::kBadInput, "{}: names no sequence of the data", o.split_table);
  }
  if (o.json) {
    print_json(result);
  } else {
    print_text(result);
  }
}

}  // namespace

void add_data_stats(CLI::App& data) {
  auto o = std::make_shared<StatsOptions>();
  CLI::App* app = data.add_subcommand("stats", "Lengths, letters and baselines of protein files");
  app->add_option("files", o->files,
                  "FASTA or .pds files, folders of them, quoted patterns; the first file gives the "
                  "letter frequencies")
      ->required();
  app->add_option("--split-table", o->split_table,
                  "TSV with columns id and split: one row a split instead of one a file");
  app->add_flag("--json", o->json, "Print one JSON object and nothing else");
  app->footer("Example: performer data stats data/proteins/{train,test,ood}.fasta.gz");
  app->callback([o] { run_stats(*o); });
}

}  // namespace performer::cli
