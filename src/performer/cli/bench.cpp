#include "performer/cli/bench.h"

#include "performer/cli/commands.h"

namespace performer::cli {

void add_bench(CLI::App& app) {
  CLI::App* bench = app.add_subcommand("bench", "Measure time and memory");
  bench->require_subcommand(1);
  bench->footer(
      "Each command has --help of its own. Examples:\n"
      "  performer bench attention --lengths 1024 4096\n"
      "  performer bench model configs/bench/regular.toml\n");
  add_bench_attention(*bench);
  add_bench_model(*bench);
}

}  // namespace performer::cli
