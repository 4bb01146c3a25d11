#include <ATen/core/Tensor.h>

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include "performer/cli/bounds.h"
#include "performer/cli/commands.h"
#include "performer/cli/model_options.h"
#include "performer/cli/row_work.h"
#include "performer/cli/sequence_checks.h"
#include "performer/cli/sequence_identity.h"
#include "performer/core/array_file.h"
#include "performer/core/error.h"
#include "performer/core/log.h"
#include "performer/data/open_sequences.h"
#include "performer/infer/embed.h"

namespace performer::cli {
namespace {

using Json = nlohmann::ordered_json;
using data::WholeSequences;

struct Options {
  ModelOptions model;
  std::string input, output, pool = "mean";
  std::int64_t layer = -1, length = 0, batch_tokens = 16384;
  bool overwrite = false, restart = false, json = false;
};

Json identity_of(const Options& o, const infer::LoadedModel& loaded, const WholeSequences& all) {
  return {{"model", model_hash(loaded)},
          {"set", o.model.attention},
          {"sequences", content_hash(all)},
          {"layer", o.layer},
          {"pool", o.pool},
          {"length", o.length},
          {"batch_tokens", o.batch_tokens},
          {"precision", o.model.precision}};
}

std::vector<std::int64_t> lengths_of(const infer::Embedder& embedder, const WholeSequences& all) {
  std::vector<std::int64_t> lengths;
  for (std::int64_t i = 0; i < all.count(); ++i) lengths.push_back(embedder.tokens(all, i));
  return lengths;
}

class Run {
 public:
  Run(const Options& o, infer::LoadedModel& loaded, const WholeSequences& all)
      : o_(o),
        all_(all),
        width_(loaded.recipe.model.dim),
        embedder_(loaded.model, loaded.space, {o.layer, infer::parse_pool(o.pool), o.length}),
        identity_(identity_of(o, loaded, all)),
        work_({"embed", o.output, o.batch_tokens, o.restart}, identity_,
              lengths_of(embedder_, all)) {}

  void compute() {
    work_.compute([&](std::span<const std::int64_t> batch, const RowWork::Take& take) {
      embedder_.run(all_, batch, [&](std::int64_t i, const at::Tensor& vectors) {
        take(i, {vectors.const_data_ptr<float>(), static_cast<std::size_t>(vectors.numel())});
      });
    });
  }

  void write(const infer::LoadedModel& loaded) {
    ArrayFile file;
    const bool each = o_.pool == "none";
    std::vector<std::int64_t> lengths, ends;
    std::int64_t rows = 0;
    for (std::int64_t i = 0; i < all_.count(); ++i) {
      file.ids.push_back(all_.id(i));
      lengths.push_back(all_.residues(i));
      if (embedder_.tokens(all_, i) < all_.tokens(i)) ++cut_;
      rows += each ? work_.count(i) / width_ : 1;
      ends.push_back(rows);
    }
    file.arrays.push_back(
        {"embeddings", ArrayType::kFloat32, {rows, width_}, [&](const auto& take) {
           for (std::int64_t i = 0; i < all_.count(); ++i) {
             const auto numbers = work_.read(i);
             take(std::as_bytes(std::span(numbers)));
           }
         }});
    const auto whole = [&](const std::string& name, const std::vector<std::int64_t>& numbers) {
      file.arrays.push_back({name, ArrayType::kInt64, {all_.count()}, [&](const auto& take) {
                               take(std::as_bytes(std::span(numbers)));
                             }});
    };
    whole("lengths", lengths);
    if (each) whole("ends", ends);
    file.about = {{"program", std::string("performer ") + PERFORMER_VERSION},
                  {"model", identity_["model"]},
                  {"checkpoint_step", std::to_string(loaded.step)},
                  {"layer", std::to_string(o_.layer)},
                  {"pool", o_.pool},
                  {"length", std::to_string(o_.length)},
                  {"precision", o_.model.precision}};
    write_arrays(o_.output, file);
    work_.finish();
  }

  void report(const infer::LoadedModel& loaded) const {
    if (o_.json) {
      fmt::print("{}\n", Json{{"output", o_.output},
                              {"checkpoint", loaded.folder},
                              {"sequences", all_.count()},
                              {"sequences_cut", cut_},
                              {"sequences_from_before", work_.from_before()},
                              {"width", width_},
                              {"seconds", work_.seconds()},
                              {"tokens_per_second", work_.tokens_per_second()}}
                             .dump(-1, ' ', false, Json::error_handler_t::replace));
      return;
    }
    fmt::print("{}\n{}: {} sequences, {} numbers for each {}, {:.0f} tokens/s\n", loaded.choice,
               o_.output, all_.count(), width_, o_.pool == "none" ? "residue" : "sequence",
               work_.tokens_per_second());
    if (cut_ > 0) {
      fmt::print("{} sequences were cut off after {} tokens, as --length says\n", cut_, o_.length);
    }
  }

 private:
  const Options& o_;
  const WholeSequences& all_;
  std::int64_t width_;
  infer::Embedder embedder_;
  Json identity_;
  RowWork work_;
  std::int64_t cut_ = 0;
};

void run_embed(const Options& o) {
  array_format_of(o.output);
  check_new_output(o.output, o.overwrite);
  infer::parse_pool(o.pool);
  auto loaded = load(o.model);
  if (o.json) log_info("{}", loaded.choice);
  const auto all = data::open_sequences(o.input, loaded.space);
  check_lengths(loaded, *all, o.input, o.length);
  Run run(o, loaded, *all);
  run.compute();
  run.write(loaded);
  run.report(loaded);
}

}  // namespace

void add_embed(CLI::App& app) {
  auto options = std::make_shared<Options>();
  auto& o = *options;
  auto* command =
      app.add_subcommand("embed", "Vectors of sequences: the hidden states of a trained model");
  add_model_options(*command, o.model);
  command
      ->add_option("input", o.input,
                   "FASTA file, or for text a file of one text a line; gzip, - for standard input")
      ->required()
      ->type_name("FILE");
  command->add_option("-o,--output", o.output, "Ends in .npz, .safetensors, .h5 or .hdf5")
      ->required()
      ->type_name("FILE");
  command
      ->add_option(
          "--pool", o.pool,
          "mean of the residues, mean-all with BOS and EOS, first token, or none: a vector "
          "for each residue")
      ->capture_default_str();
  bounded(
      command->add_option("--layer,--repr-layer", o.layer,
                          "0: the embeddings, N: after N layers, -1: after all and the last norm, "
                          "-2: without the last layer, and so on"),
      -models::kMaxLayers - 1, models::kMaxLayers)
      ->capture_default_str();
  bounded(command->add_option("--length,--truncation-seq-length", o.length,
                              "Tokens of a sequence that are read (default: all)"),
          1, kMostTokens);
  bounded(command->add_option("--batch-tokens,--toks-per-batch", o.batch_tokens,
                              "Tokens that are computed at once, with padding"),
          1, kMostTokens)
      ->capture_default_str();
  command->add_flag("--overwrite", o.overwrite, "Replace an output file that already exists");
  command->add_flag("--restart", o.restart, "Begin anew what an interrupted command has begun");
  add_placement_options(*command, o.model);
  command->add_flag("--json", o.json, "Print one JSON object");
  command->footer(
      "The order of the input is kept. A command that was killed goes on where it was: its "
      "vectors\n"
      "are in OUTPUT.partial until they are all there. Ids are data in the file, never names.\n"
      "Examples:\n  performer embed runs/protein in.fasta.gz -o vectors.npz\n"
      "  performer embed runs/protein in.fasta -o residues.safetensors --pool none --layer 4\n"
      "  zcat *.fasta.gz | performer embed runs/protein - -o all.h5");
  command->callback([options] { run_embed(*options); });
}

}  // namespace performer::cli
