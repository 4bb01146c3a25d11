#include "performer/cli/attention.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <charconv>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "performer/cli/bounds.h"
#include "performer/cli/commands.h"
#include "performer/cli/given_sequence.h"
#include "performer/cli/sequence_checks.h"
#include "performer/core/error.h"
#include "performer/core/file.h"
#include "performer/core/log.h"
#include "performer/data/alphabet.h"
#include "performer/data/open_sequences.h"
#include "performer/infer/mutation.h"
#include "performer/infer/sequence_batch.h"

namespace performer::cli {
namespace {

constexpr std::int64_t kMostTiles = 512, kMostWindow = 512;

using Json = nlohmann::ordered_json;

struct Outputs {
  std::string path;
  std::string (*make)(const AttentionResult& result);
};

std::vector<Outputs> outputs_of(const AttentionOptions& o) {
  std::vector<Outputs> outputs = {{o.page, attention_page},
                                  {o.maps, maps_text},
                                  {o.heads_table, heads_text},
                                  {o.residues, residues_text},
                                  {o.picture, grid_png}};
  std::erase_if(outputs, [](const auto& output) { return output.path.empty(); });
  return outputs;
}

// Numbers below `count`, all where none are given.
std::vector<std::int64_t> chosen(const char* option, std::vector<std::int64_t> numbers,
                                 std::int64_t count) {
  if (numbers.empty()) {
    numbers.resize(static_cast<std::size_t>(count));
    std::iota(numbers.begin(), numbers.end(), std::int64_t{0});
  }
  std::ranges::sort(numbers);
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  if (numbers.back() >= count) {
    fail(ExitCode::kUsage, "{}: the model has 0 to {}, got {}", option, count - 1, numbers.back());
  }
  return numbers;
}

// "100-200", both ends shown.
TokenRange parse_window(const std::string& text, std::int64_t tokens) {
  if (text.empty()) return {};
  const auto* const end = text.data() + text.size();
  std::int64_t first = -1, last = -1;
  const auto one = std::from_chars(text.data(), end, first);
  const bool dash = one.ec == std::errc() && one.ptr != end && *one.ptr == '-';
  const auto two = dash ? std::from_chars(one.ptr + 1, end, last) : one;
  if (!dash || two.ec != std::errc() || two.ptr != end || first < 0 || last < first) {
    fail(ExitCode::kUsage, "--window: two numbers of tokens as in 100-200, got '{}'", text);
  }
  if (last >= tokens || last - first >= kMostWindow) {
    fail(ExitCode::kUsage, "--window {}: at most {} tokens out of 0 to {} of this sequence", text,
         kMostWindow, tokens - 1);
  }
  return {first, last + 1};
}

std::shared_ptr<const data::WholeSequences> sequences_of(const AttentionOptions& o,
                                                         const data::TokenSpace& space) {
  if (o.input.empty() == o.sequence.empty()) {
    fail(ExitCode::kUsage, "attention: a file or --sequence is needed, and not both");
  }
  if (o.sequence.empty()) return data::open_sequences(o.input, space);
  auto given = std::make_shared<const GivenSequence>(o.sequence, space);
  if (given->residues(0) == 0) fail(ExitCode::kBadInput, "--sequence: holds no residue");
  return given;
}

std::string label_of(std::int64_t token, const data::TokenSpace& space) {
  if (space.kind == "protein") return data::alphabet::name_of(token);
  const auto text = space.decode({&token, 1});
  return text.empty() ? fmt::format("<{}>", token) : text;
}

// int64 [L]: the place of each residue in kResidues, -1 for others.
at::Tensor kinds_of(const at::Tensor& tokens, const std::vector<std::int64_t>& residues) {
  at::Tensor kinds = at::full_like(tokens, -1);
  for (std::size_t i = 0; i < residues.size(); ++i) {
    kinds.masked_fill_(tokens.eq(residues[i]), static_cast<std::int64_t>(i));
  }
  return kinds;
}

class Look {
 public:
  Look(const AttentionOptions& o, infer::LoadedModel& loaded, const data::WholeSequences& all)
      : o_(o), loaded_(loaded), all_(all) {
    if (o.record > all.count()) {
      fail(ExitCode::kUsage, "--record: the input has {} sequences, got {}", all.count(), o.record);
    }
    const auto& config = loaded.recipe.model;
    options_.layers = chosen("--layer", o.layers, config.layers);
    result_.shown_heads = chosen("--head", o.heads, config.heads);
    result_.causal = config.causal;
    result_.model = loaded.folder;
    result_.id = all.id(o.record - 1);
    if (loaded.space.kind == "protein") residues_ = infer::residue_tokens(loaded.space);
    if (!o.residues.empty() && residues_.empty()) {
      fail(ExitCode::kUsage, "--residues: the model reads {}, which are no residues",
           loaded.space.kind);
    }
  }

  AttentionResult run() {
    for (std::int64_t i = 0; i < all_.count(); ++i) {
      const bool shown = i == o_.record - 1;
      if (shown || !residues_.empty()) read(i, shown);
      log_progress(fmt::format("attention: {}/{} sequences", i + 1, all_.count()));
    }
    log_progress("");
    if (!residues_.empty()) {
      result_.sequences = all_.count();
      result_.ratios = sums_.ratios();
      result_.agreement = infer::compare_with_blosum62(result_.ratios, o_.permutations);
    }
    return std::move(result_);
  }

 private:
  void read(std::int64_t sequence, bool shown) {
    const at::Tensor tokens =
        infer::read_batch(all_, loaded_.space, std::span(&sequence, 1)).tokens;  // [1, L]
    infer::MapOptions options = options_;
    const auto length = tokens.size(1);
    options.tiles = shown ? o_.tiles : 1;
    options.exact = shown && o_.exact;
    if (!residues_.empty()) {
      options.kinds = kinds_of(tokens[0], residues_);
      options.num_kinds = infer::kStandardResidues;
    }
    if (shown) {
      result_.window = parse_window(o_.window, length);
      options.window_begin = result_.window.begin, options.window_end = result_.window.end;
      result_.tile = infer::tile_size(length, o_.tiles);
      for (std::int64_t t = 0; t < length; ++t) {
        result_.labels.push_back(label_of(tokens[0][t].item<std::int64_t>(), loaded_.space));
      }
    }
    infer::map_attention(loaded_.model, tokens, options, [&](const infer::LayerMaps& maps) {
      if (maps.by_kind.defined()) sums_.add(maps.by_kind, options.kinds, result_.causal);
      if (!shown) return;
      result_.scores.push_back(infer::head_scores(maps.tiles, length, result_.causal));
      result_.layers.push_back(maps);
    });
  }

  const AttentionOptions& o_;
  infer::LoadedModel& loaded_;
  const data::WholeSequences& all_;
  infer::MapOptions options_;
  std::vector<std::int64_t> residues_;  // tokens; empty for models of other things
  infer::ResidueAttention sums_;
  AttentionResult result_;
};

void run_attention(const AttentionOptions& o) {
  const auto outputs = outputs_of(o);
  for (const auto& output : outputs) check_new_output(output.path, o.overwrite);
  auto loaded = load(o.model);
  log_info("{}", loaded.choice);
  const auto all = sequences_of(o, loaded.space);
  check_lengths(loaded, *all, o.input.empty() ? "--sequence" : o.input, kWholeOnly);
  const auto result = Look(o, loaded, *all).run();
  for (const auto& output : outputs) write_file_atomic(output.path, output.make(result));
  if (o.json) {
    fmt::print("{}\n", attention_json(result).dump(-1, ' ', false, Json::error_handler_t::replace));
  } else if (outputs.empty()) {
    fmt::print("{}", heads_text(result));
  } else if (result.agreement) {
    fmt::print("residue to residue, {} sequences: correlation {:.3f} with BLOSUM62 (p = {:.4f})\n",
               result.sequences, result.agreement->correlation, result.agreement->p_value);
  }
}

}  // namespace

void add_attention(CLI::App& app) {
  auto options = std::make_shared<AttentionOptions>();
  auto& o = *options;
  auto* command = app.add_subcommand("attention", "What the heads of a model attend to");
  add_model_options(*command, o.model);
  command
      ->add_option("input", o.input,
                   "FASTA file, or for text a file of one text a line; gzip, - for standard input")
      ->type_name("FILE");
  command->add_option("--sequence", o.sequence, "One sequence, instead of a file")
      ->type_name("TEXT");
  bounded(command->add_option("--record", o.record, "Which sequence of the file is shown"), 1,
          kMostTokens)
      ->capture_default_str();
  command->add_option("-o,--output", o.page, "A page with maps, heads and residues")
      ->type_name("FILE.html");
  command->add_option("--scores", o.heads_table, "Table of the heads' scores")
      ->type_name("FILE.tsv");
  command->add_option("--maps", o.maps, "Table of weights by tiles, and by tokens in --window")
      ->type_name("FILE.tsv");
  command->add_option("--residues", o.residues, "Table of residues to residues, beside BLOSUM62")
      ->type_name("FILE.tsv");
  command->add_option("--png", o.picture, "Picture of all maps: layers by heads")
      ->type_name("FILE.png");
  bounded(command->add_option("--layer", o.layers, "Which layers; the first is 0 (default: all)"),
          0, models::kMaxLayers)
      ->expected(1)
      ->take_all();
  bounded(command->add_option("--head", o.heads,
                              "Of which heads maps are written; the first is 0 (default: all)"),
          0, models::kMaxLayers)
      ->expected(1)
      ->take_all();
  bounded(command->add_option("--tiles", o.tiles,
                              "Most rows and columns of a map; longer sequences are pooled"),
          2, kMostTiles)
      ->capture_default_str();
  command
      ->add_option("--window", o.window,
                   "Tokens to show one by one, as 100-200; where there is a BOS it is 0, and "
                   "residue N is N")
      ->type_name("FIRST-LAST");
  command->add_flag("--exact", o.exact,
                    "Beside them exact softmax of the same queries and keys, which takes time that "
                    "grows with the square of the length");
  command->add_flag("--overwrite", o.overwrite, "Replace output files that already exist");
  add_placement_options(*command, o.model);
  command->add_flag("--json", o.json, "Print one JSON object");
  command->footer(
      "Without an output file it prints the heads' scores. diagonal: weight on tokens close by,\n"
      "beyond what averaging would give; vertical: how far columns are from being seen evenly.\n"
      "Residues are summed over all sequences of the input, all layers and heads that were "
      "chosen.\n"
      "Examples:\n  performer attention runs/protein --sequence MKTAYIAKQRQISFVKSH -o page.html\n"
      "  performer attention runs/protein in.fasta --record 3 --layer 0 --png maps.png\n"
      "  performer attention runs/protein long.fasta --window 100-200 --maps maps.tsv --exact");
  command->callback([options] { run_attention(*options); });
}

}  // namespace performer::cli
