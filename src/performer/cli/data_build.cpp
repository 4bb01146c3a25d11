#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>

#include "performer/cli/data.h"
#include "performer/cli/data_table.h"
#include "performer/core/error.h"
#include "performer/core/log.h"
#include "performer/data/build.h"

namespace performer::cli {
namespace {

struct BuildOptions {
  std::string input, output;
  bool deduplicate = false, json = false, overwrite = false;
};

void run_build(const BuildOptions& o) {
  std::error_code unknown;
  const bool there = std::filesystem::exists(std::filesystem::symlink_status(o.output, unknown));
  if (there && !o.overwrite && !std::filesystem::equivalent(o.input, o.output, unknown)) {
    fail(ExitCode::kUsage, "{}: already exists; name another file, or pass --overwrite", o.output);
  }
  data::BuildOptions options;
  options.deduplicate = o.deduplicate;
  options.progress = [](const data::FastaCounts& c) {
    log_progress(fmt::format("{} MB, {} sequences", c.bytes / 1'000'000, c.records));
  };
  const data::BuildResult result = data::build_pds(o.input, o.output, options);
  if (o.json) {
    const nlohmann::ordered_json json = {{"output", o.output},
                                         {"sha256", result.sha256},
                                         {"read", to_json(result.counts)},
                                         {"lengths", to_json(result.lengths)}};
    fmt::print("{}", json_line(json));
    return;
  }
  const std::string notes = data::mended(result.counts);
  if (!notes.empty()) log_info("{}: {}", o.input, notes);
  fmt::print("{}: {} sequences, {} residues, sha256 {}\n", o.output, result.lengths.count,
             result.lengths.total, result.sha256);
}

}  // namespace

void add_data_build(CLI::App& data) {
  auto o = std::make_shared<BuildOptions>();
  CLI::App* app = data.add_subcommand(
      "build",
      "Make the indexed binary form (.pds) of a FASTA file, in one pass and constant memory");
  app->add_option("input", o->input, "FASTA, plain or gzip; - reads standard input")->required();
  app->add_option("-o,--output", o->output, "The .pds file to make")->required();
  app->add_flag("--deduplicate", o->deduplicate,
                "Keep the first of equal sequences (memory: a table of 16-byte hashes)");
  app->add_flag("--overwrite", o->overwrite, "Replace an output that already exists");
  app->add_flag("--json", o->json, "Print one JSON object and nothing else");
  app->footer("Example: performer data build uniprot_trembl.fasta.gz -o trembl.pds --deduplicate");
  app->callback([o] { run_build(*o); });
}

}  // namespace performer::cli
