#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <vector>

#include "performer/cli/data.h"
#include "performer/cli/data_table.h"
#include "performer/data/split_fasta.h"
#include "performer/data/tsv.h"

namespace performer::cli {
namespace {

struct SplitOptions {
  std::string input, folder;
  std::vector<std::string> held_out;
  data::SplitOptions split;
  bool json = false;
};

// Names, or TSV files with a column `family`.
std::vector<std::string> read_families(const std::vector<std::string>& given) {
  std::vector<std::string> families, fields;
  for (const auto& item : given) {
    std::error_code unknown;  // a name may be too long for a file
    if (!std::filesystem::exists(item, unknown)) {
      families.push_back(item);
      continue;
    }
    data::TsvReader reader(item, data::TsvReader::kMaxRows, data::TsvReader::kMaxWords);
    const std::size_t column = reader.at("family");
    while (reader.next(fields)) families.push_back(fields[column]);
  }
  return families;
}

void run_split(const SplitOptions& o) {
  data::SplitOptions options = o.split;
  options.held_out = read_families(o.held_out);
  const data::SplitResult result = data::split_fasta(o.input, o.folder, options);
  if (o.json) {
    nlohmann::ordered_json parts = nlohmann::ordered_json::array();
    for (const auto& part : result.parts) {
      parts.push_back(
          {{"name", part.name}, {"path", part.path}, {"lengths", to_json(part.lengths)}});
    }
    const nlohmann::ordered_json json = {{"parts", parts}, {"duplicates", result.duplicates}};
    fmt::print("{}", json_line(json));
    return;
  }
  fmt::print("{}", length_heading());
  for (const auto& part : result.parts) fmt::print("{}", length_row(part.name, part.lengths));
  if (result.duplicates > 0) fmt::print("{} equal sequences dropped\n", result.duplicates);
}

}  // namespace

void add_data_split(CLI::App& data) {
  auto o = std::make_shared<SplitOptions>();
  CLI::App* app = data.add_subcommand(
      "split", "Split a FASTA file into train, valid, test and held-out families (ood)");
  app->add_option("input", o->input, "FASTA, plain or gzip; - reads standard input")->required();
  app->add_option("-o,--output", o->folder, "Folder for the four files")->required();
  app->add_option("--families", o->split.families, "TSV with columns id and family");
  app->add_option(
         "--held-out", o->held_out,
         "Families to hold out, or a TSV with a column family; default: the paper's 20 Pfam "
         "families")
      ->delimiter(',');
  app->add_option("--valid", o->split.valid, "Share of the others for validation")
      ->capture_default_str();
  app->add_option("--test", o->split.test, "Share of the others for test")->capture_default_str();
  app->add_option("--format", o->split.format, "fasta or pds")->capture_default_str();
  app->add_flag("--deduplicate", o->split.deduplicate,
                "Keep the first of equal sequences (memory: a table of 16-byte hashes)");
  app->add_flag("--overwrite", o->split.overwrite,
                "Replace the parts of an earlier split, and remove those that get no sequence");
  app->add_flag("--json", o->json, "Print one JSON object and nothing else");
  app->footer(
      "Example: performer data split all.fasta.gz --families pfam.tsv -o splits --deduplicate");
  app->callback([o] { run_split(*o); });
}

}  // namespace performer::cli
