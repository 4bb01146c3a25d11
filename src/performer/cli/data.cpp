#include "performer/cli/data.h"

#include "performer/cli/commands.h"

namespace performer::cli {

void add_data(CLI::App& app) {
  CLI::App* data = app.add_subcommand("data", "Prepare, split and describe data");
  data->require_subcommand(1);
  data->footer(
      "Each command has --help of its own. Examples:\n"
      "  performer data build uniprot.fasta.gz -o uniprot.pds\n"
      "  performer data stats data/proteins/train.fasta.gz\n");
  add_data_build(*data);
  add_data_stats(*data);
  add_data_split(*data);
  add_data_tokenizer(*data);
  add_data_tokenize(*data);
}

}  // namespace performer::cli
