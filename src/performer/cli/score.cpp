#include "performer/cli/score.h"

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cstdio>
#include <utility>

#include "performer/cli/bounds.h"
#include "performer/cli/commands.h"
#include "performer/cli/sequence_checks.h"
#include "performer/cli/sequence_identity.h"
#include "performer/core/error.h"
#include "performer/core/file.h"
#include "performer/core/log.h"
#include "performer/data/open_sequences.h"

namespace performer::cli {

using Json = nlohmann::ordered_json;
using infer::ScoreMethod;

infer::Readings::Range ScoreInput::add_whole(infer::Readings& readings, std::int64_t sequence,
                                             std::int64_t variant) const {
  const bool one_pass = causal || method == ScoreMethod::kWildtype;
  return one_pass ? readings.add_whole(sequence, variant)
                  : readings.add_each_masked(sequence, variant);
}

Likelihood likelihood_of(const RowWork& work, const infer::Readings::Range& rows) {
  Likelihood found;
  for (auto row = rows.begin; row < rows.end; ++row) {
    for (const float log_p : work.read(row)) found.sum += static_cast<double>(log_p);
    found.targets += work.count(row);
  }
  return found;
}

namespace {

void check_options(const ScoreOptions& o) {
  if (o.scan && !o.mutations.empty()) {
    fail(ExitCode::kUsage, "--scan and --mutations are two tables; ask for one at a time");
  }
  if (o.json && o.output.empty()) {
    fail(ExitCode::kUsage,
         "--json needs -o FILE for the table, which goes to standard output else");
  }
  if (!o.output.empty()) check_new_output(o.output, o.overwrite);
}

// What is asked for, or what suits the model and the table.
ScoreMethod method_for(const ScoreOptions& o, bool causal) {
  const bool sites = o.scan || !o.mutations.empty();
  if (o.method.empty()) {
    if (causal) return o.scan ? ScoreMethod::kWildtype : ScoreMethod::kWhole;
    return sites ? ScoreMethod::kMasked : ScoreMethod::kWhole;
  }
  const auto method = infer::parse_score_method(o.method);
  if (causal && method == ScoreMethod::kMasked) {
    fail(ExitCode::kUsage,
         "--method masked: the model is causal and knows no mask; take pseudo (whole sequences, "
         "exactly) or wildtype");
  }
  if (o.scan && method == ScoreMethod::kWhole) {
    fail(ExitCode::kUsage,
         "--method pseudo: a scan would compute 19 whole sequences for each residue; take {}",
         causal ? "wildtype" : "masked or wildtype");
  }
  return method;
}

void check_mask(const infer::LoadedModel& loaded, ScoreMethod method) {
  if (loaded.recipe.model.causal || method == ScoreMethod::kWildtype || loaded.space.mask >= 0) {
    return;
  }
  fail(ExitCode::kUsage, "--method {}: the model has no mask; take wildtype",
       infer::name_of(method));
}

std::unique_ptr<ScoreTable> make_table(const ScoreOptions& o, const ScoreInput& input) {
  if (o.scan) return score_scan(input);
  return o.mutations.empty() ? score_sequences(input) : score_mutations(input, o.mutations);
}

Json identity_of(const ScoreOptions& o, const infer::LoadedModel& loaded, const ScoreInput& input,
                 const ScoreTable& table) {
  return {{"model", model_hash(loaded)},
          {"set", o.model.attention},
          {"sequences", content_hash(input.sequences)},
          {"table", table.identity()},
          {"method", infer::name_of(input.method)},
          {"batch_tokens", o.batch_tokens},
          {"precision", o.model.precision}};
}

void write_table(const ScoreOptions& o, ScoreTable& table, const RowWork& work) {
  if (o.output.empty()) {
    table.write(work,
                [](std::string_view text) { std::fwrite(text.data(), 1, text.size(), stdout); });
    return;
  }
  AtomicFile file(o.output);
  std::string pending;
  table.write(work, [&](std::string_view text) {
    pending += text;
    if (pending.size() < std::size_t{1} << 16) return;
    file.writer().write(pending);
    pending.clear();
  });
  file.writer().write(pending);
  file.commit();
}

void report(const ScoreOptions& o, const infer::LoadedModel& loaded, const RowWork& work,
            const Json& facts) {
  if (o.json) {
    fmt::print("{}\n", facts.dump(-1, ' ', false, Json::error_handler_t::replace));
  } else if (!o.output.empty()) {
    fmt::print("{}\n{}: {} sequences, {} passes, {:.0f} tokens/s\n", loaded.choice, o.output,
               facts["sequences"].get<std::int64_t>(), facts["passes"].get<std::int64_t>(),
               work.tokens_per_second());
  }
}

void run_score(const ScoreOptions& o) {
  check_options(o);
  auto loaded = load(o.model);
  const bool causal = loaded.recipe.model.causal;
  const auto method = method_for(o, causal);
  check_mask(loaded, method);
  if (o.json || o.output.empty()) log_info("{}", loaded.choice);
  const auto all = data::open_sequences(o.input, loaded.space);
  check_lengths(loaded, *all, o.input, kWholeOnly);
  const ScoreInput input{*all, loaded.space, method, causal, o.offset, o.input};
  const auto table = make_table(o, input);
  infer::Scorer scorer(loaded.model, loaded.space, table->letters());
  infer::Readings readings(*all, loaded.space);
  table->plan(readings);
  std::vector<std::int64_t> lengths;
  for (std::int64_t i = 0; i < readings.count(); ++i) lengths.push_back(readings.tokens(i));
  const auto identity = identity_of(o, loaded, input, *table);
  RowWork work({"score", o.output, o.batch_tokens, o.restart}, identity, std::move(lengths));
  work.compute([&](std::span<const std::int64_t> batch, const RowWork::Take& take) {
    scorer.run(readings, batch, [&](std::int64_t row, const at::Tensor& log_p) {
      take(row, {log_p.const_data_ptr<float>(), static_cast<std::size_t>(log_p.numel())});
    });
  });
  write_table(o, *table, work);
  Json facts = {{"output", o.output},
                {"program", std::string("performer ") + PERFORMER_VERSION},
                {"checkpoint", loaded.folder},
                {"model", identity["model"]},
                {"method", infer::name_of(method)},
                {"sequences", all->count()}};
  facts.update(table->facts());
  facts.update(Json{{"passes", readings.count()},
                    {"passes_from_before", work.from_before()},
                    {"seconds", work.seconds()},
                    {"tokens_per_second", work.tokens_per_second()}});
  work.finish();
  report(o, loaded, work, facts);
}

}  // namespace

void add_score(CLI::App& app) {
  auto options = std::make_shared<ScoreOptions>();
  auto& o = *options;
  auto* command =
      app.add_subcommand("score", "How likely a model finds sequences, and mutations of them");
  add_model_options(*command, o.model);
  command
      ->add_option("input", o.input,
                   "FASTA file, or for text a file of one text a line; gzip, - for standard input")
      ->required()
      ->type_name("FILE");
  command
      ->add_option("-o,--output", o.output,
                   "Table with tabs (default: standard output); a command that was killed goes on")
      ->type_name("FILE");
  command
      ->add_option("--mutations", o.mutations,
                   "CSV file with a column mutant (A24G, A24G:K30R), and id where the input has "
                   "several sequences")
      ->type_name("FILE");
  command->add_flag("--scan", o.scan, "Score all 20 residues at every position");
  command
      ->add_option("--method,--scoring-strategy", o.method,
                   "masked: each residue behind the mask, seen from all others; wildtype: one pass "
                   "without a mask; pseudo: whole sequences, mutant against wild type")
      ->type_name("NAME");
  bounded(command->add_option("--offset,--offset-idx", o.offset,
                              "Number of the first residue in mutations and scans"),
          -kMostTokens, kMostTokens)
      ->capture_default_str();
  bounded(command->add_option("--batch-tokens,--toks-per-batch", o.batch_tokens,
                              "Tokens that are computed at once, with padding"),
          1, kMostTokens)
      ->capture_default_str();
  command->add_flag("--overwrite", o.overwrite, "Replace an output file that already exists");
  command->add_flag("--restart", o.restart, "Begin anew what an interrupted command has begun");
  add_placement_options(*command, o.model);
  command->add_flag("--json", o.json, "Print one JSON object; needs -o");
  command->footer(
      "Without --mutations and --scan: log-likelihood and perplexity of each sequence. They are\n"
      "exact for causal models; others mask each residue in turn (pseudo), one pass a residue, or\n"
      "mask nothing (--method wildtype), one pass a sequence.\n"
      "Mutations: log p(new residue) - log p(wild type), by default masked, in causal models "
      "whole\n"
      "sequences; more than 0 is more likely than the wild type.\n"
      "Examples:\n  performer score runs/protein in.fasta.gz -o scores.tsv\n"
      "  performer score runs/protein one.fasta --mutations dms.csv --offset 24 -o effects.tsv\n"
      "  performer score runs/protein one.fasta --scan --method wildtype > scan.tsv");
  command->callback([options] { run_score(*options); });
}

}  // namespace performer::cli
