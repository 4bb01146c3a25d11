#include <fmt/format.h>

#include <fmt/ranges.h>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "performer/cli/bounds.h"
#include "performer/cli/commands.h"
#include "performer/cli/convert_fit.h"
#include "performer/cli/data_table.h"
#include "performer/core/error.h"
#include "performer/core/log.h"
#include "performer/pretrained/convert.h"
#include "performer/pretrained/export.h"

namespace performer::cli {
namespace {

using Json = nlohmann::ordered_json;

struct ConvertCommand {
  std::string from, to, attention = "favor";
  pretrained::ConvertOptions how;
  FitCommand fit;
  std::int64_t near = 0;
  bool back = false, json = false;
  CLI::Option *given_attention = nullptr, *given_check = nullptr;
  std::vector<CLI::Option*> of_favor;  // options that mean nothing without features
};

// "favor (64 features, near 64)", and the layers that stay exact.
std::string attention_text(const models::ModelConfig& model) {
  if (model.attention.kind == "exact") return "exact";
  auto text = fmt::format("favor, {} features a head", model.attention.features);
  if (model.attention.near > 0) text += fmt::format(", near = {}", model.attention.near);
  std::vector<std::int64_t> exact;
  for (std::int64_t layer = 0; layer < model.layers; ++layer) {
    if (model.kind_of(layer) == "exact") exact.push_back(layer);
  }
  if (!exact.empty()) text += fmt::format("; exact in layers {}", fmt::join(exact, ", "));
  return text;
}

void print_converted(const ConvertCommand& c, const pretrained::Converted& done) {
  const auto& model = done.recipe.model;
  if (c.json) {
    const Json json = {{"architecture", done.architecture},
                       {"source", done.recipe.source},
                       {"out", c.to},
                       {"parameters", done.parameters},
                       {"tensors", done.tensors},
                       {"kept", done.kept},
                       {"attention", model.attention.kind},
                       {"features", model.attention.kind == "favor" ? model.attention.features : 0},
                       {"near", model.attention.kind == "favor" ? model.attention.near : 0},
                       {"layer_kinds", model.layer_kinds},
                       {"causal", model.causal},
                       {"checked", c.how.check}};
    fmt::print("{}", json_line(json));
    return;
  }
  fmt::print("{}: {}, {} parameters in {} tensors\n", c.to, done.architecture, done.parameters,
             done.tensors);
  fmt::print("attention: {}\n", attention_text(model));
  if (c.how.check) fmt::print("checked: every number read back is the one in the folder\n");
  if (!done.kept.empty()) {
    fmt::print("kept for an export, and not computed with: {}\n", fmt::join(done.kept, ", "));
  }
}

// A causal model without a near field is another model: said, and never chosen in silence.
void say_near(const ConvertCommand& c, const models::ModelConfig& model) {
  if (model.attention.kind != "favor" || !model.causal) return;
  if (!c.how.near) {
    log_info(
        "causal: near = {}: each token attends exactly to its own block of {} tokens and the one "
        "before, to earlier ones by features; --near 0 takes features alone",
        model.attention.near, model.attention.near);
  } else if (*c.how.near == 0) {
    log_info(
        "causal without a near field: heads that look at exact positions lose them; perplexity "
        "rises much");
  }
}

void run_convert(ConvertCommand& c) {
  c.how.favor = c.attention == "favor";
  if (!c.how.favor) {
    for (const auto* option : c.of_favor) {
      if (option->count() == 0) continue;
      fail(ExitCode::kUsage, "{}: has no effect with --attention exact; leave it out",
           option->get_name());
    }
  }
  check_fit(c.fit);
  if (c.fit.asked()) c.how.refine = fitting(c.fit, c.to, static_cast<std::uint64_t>(c.how.seed));
  const auto done = pretrained::is_run(c.from) ? pretrained::convert_run(c.from, c.to, c.how)
                                               : pretrained::convert(c.from, c.to, c.how);
  forget_fit(c.fit, c.to);
  say_near(c, done.recipe.model);
  print_converted(c, done);
}

void run_export(const ConvertCommand& c) {
  std::vector<CLI::Option*> others = c.of_favor;
  others.push_back(c.given_attention), others.push_back(c.given_check);
  for (const auto* option : others) {
    if (option->count() == 0) continue;
    fail(ExitCode::kUsage, "{}: has no effect with --export; leave it out", option->get_name());
  }
  const auto done = pretrained::export_folder(c.from, c.to);
  if (done.approximate) {
    log_info("{}: its features stay behind: other programs run exact attention on these weights",
             done.from);
  }
  if (c.json) {
    const Json json = {{"architecture", done.architecture},
                       {"from", done.from},
                       {"out", c.to},
                       {"tensors", done.tensors},
                       {"exact", !done.approximate}};
    fmt::print("{}", json_line(json));
  } else {
    fmt::print("{}: {}, {} tensors in float32\n", c.to, done.architecture, done.tensors);
  }
}

void add_attention_options(CLI::App& command, ConvertCommand& c) {
  c.given_attention =
      command.add_option("--attention", c.attention, "favor, or exact: the model as it is")
          ->capture_default_str()
          ->check(CLI::IsMember({"favor", "exact"}));
  c.of_favor.push_back(bounded(command
                                   .add_option("--features", c.how.features,
                                               "Random features of a head; 0: the near field alone")
                                   ->capture_default_str(),
                               0, models::kMaxFeatures));
  c.of_favor.push_back(bounded(
      command.add_option_function<std::int64_t>(
          "--near", [&c](std::int64_t near) { c.how.near = near; },
          "Tokens of a block of the exact near field (default: causal models 64, others 0)"),
      0, models::kMostNear));
  c.of_favor.push_back(command
                           .add_option("--keep-exact", c.how.keep_exact,
                                       "Layers that stay exact, from 0: --keep-exact 0,5")
                           ->delimiter(',')
                           ->type_name("LAYERS"));
  c.of_favor.push_back(bounded(
      command.add_option("--seed", c.how.seed, "Of the random projections")->capture_default_str(),
      0, INT64_MAX));
}

}  // namespace

void add_convert(CLI::App& app) {
  auto state = std::make_shared<ConvertCommand>();
  auto& c = *state;
  auto* command = app.add_subcommand(
      "convert", "Make a Performer of a pretrained model in Hugging Face's layout, or of a run");
  command
      ->add_option("from", c.from,
                   "Folder with config.json and model.safetensors, or a run of exact attention")
      ->required();
  command->add_option("out", c.to, "New folder: a checkpoint that eval and generate take")
      ->required();
  add_attention_options(*command, c);
  add_fit_options(*command, c.fit);
  c.of_favor.insert(c.of_favor.end(), c.fit.options.begin(), c.fit.options.end());
  c.given_check =
      command->add_flag("--check", c.how.check, "Read OUT again and compare every number");
  command->add_flag("--export", c.back,
                    "The way back: FROM is a converted checkpoint, OUT a folder for transformers");
  command->add_flag("--json", c.json, "Print one JSON object");
  command->footer(
      "BERT and MiniLM, ESM-2, GPT-2, Llama, Mistral and Qwen2. Anything that cannot be expressed\n"
      "exactly is refused by name; pickled weights are never read.\n"
      "Examples:\n  performer convert all-MiniLM-L6-v2 minilm --features 128\n"
      "  performer convert all-MiniLM-L6-v2 minilm --features 64 --fit articles.txt\n"
      "  performer convert esm2_t6_8M_UR50D esm --attention exact --check\n"
      "  performer convert gpt2 performer-gpt2 --near 64 --keep-exact 0,11\n"
      "  performer convert runs/exact runs/exact-64 --features 64 --fit book.txt.gz\n"
      "  performer convert --export performer-gpt2 gpt2-again");
  command->callback([state] { state->back ? run_export(*state) : run_convert(*state); });
}

}  // namespace performer::cli
