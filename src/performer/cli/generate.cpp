#include "performer/cli/generate.h"

#include <algorithm>
#include <chrono>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "performer/cli/bounds.h"
#include "performer/cli/commands.h"
#include "performer/core/error.h"
#include "performer/core/log.h"
#include "performer/models/length_limit.h"

namespace performer::cli {
namespace {

constexpr std::int64_t kLength = 500;        // new tokens where --length does not say
constexpr std::int64_t kMostSamples = 4096;  // of one batch
constexpr double kMostTemperature = 1e6;

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// BOS, or what the model begins with, and the prompt.
std::vector<std::int64_t> prompt_of(const GenerateOptions& o, const infer::LoadedModel& loaded) {
  std::vector<std::int64_t> prompt;
  if (loaded.space.start >= 0) prompt.push_back(loaded.space.start);
  if (!o.prompt.empty()) {
    const auto words = loaded.space.encode(o.prompt);
    prompt.insert(prompt.end(), words.begin(), words.end());
  }
  if (prompt.empty()) {
    fail(ExitCode::kUsage, "{}: its sequences begin with no token of their own; give a --prompt",
         o.model.path);
  }
  return prompt;
}

// Learned positions end at max_length. The last new token is not read again: it needs none.
std::int64_t cap_length(std::int64_t wanted, std::int64_t prompt,
                        const models::ModelConfig& model) {
  const auto limit = models::length_limit(model);
  if (limit == 0) return wanted;
  const auto most = limit - prompt + 1;
  if (most < 1) {
    fail(ExitCode::kUsage, "--prompt: {} tokens with its start, the model has positions for {}",
         prompt, model.max_length);
  }
  if (wanted <= most) return wanted;
  log_info("--length: {} new tokens instead of {}: the model has learned positions for {}", most,
           wanted, model.max_length);
  return most;
}

infer::SamplingOptions sampling_of(const GenerateOptions& o, const infer::LoadedModel& loaded) {
  auto sampling = o.sampling;
  sampling.forbidden = loaded.space.never_generated();
  if (o.no_stop) {
    sampling.forbidden.insert(sampling.forbidden.end(), loaded.ends.begin(), loaded.ends.end());
  } else {
    sampling.stop = loaded.ends;
    std::erase_if(sampling.forbidden,
                  [&](auto token) { return std::ranges::count(loaded.ends, token) > 0; });
  }
  return sampling;
}

void run_generate(const GenerateOptions& o) {
  auto loaded = load(o.model);
  log_info("{}", loaded.choice);
  if (!loaded.recipe.model.causal) {
    fail(ExitCode::kUsage,
         "{}: the model is bidirectional (model.causal = false) and generates nothing; take a "
         "causal one",
         o.model.path);
  }
  const bool pixels = loaded.space.kind == "pixels";
  if (!pixels && !o.output.empty()) {
    fail(ExitCode::kUsage, "--output: {} makes no images; its sequences go to standard output",
         o.model.path);
  }
  std::optional<ImageFolder> folder;
  if (pixels) folder.emplace(o, loaded);
  const auto prompt = prompt_of(o, loaded);
  auto sampling = sampling_of(o, loaded);
  const auto wanted = pixels ? folder->values() : o.length > 0 ? o.length : kLength;
  sampling.length = cap_length(wanted, std::ssize(prompt), loaded.recipe.model);
  if (pixels && sampling.length < wanted) {
    fail(ExitCode::kUsage, "{}: learned positions for {} tokens, an image has {} values",
         o.model.path, loaded.recipe.model.max_length, wanted);
  }
  Timing timing;
  const auto begin = std::chrono::steady_clock::now();
  const auto generated = infer::generate(loaded.model, prompt, sampling, o.n, [&](std::int64_t i) {
    if (i % 1000 == 0) timing.at_each_1000.push_back(seconds_since(begin));
    if (i % 256 == 0) log_progress(fmt::format("{} sequences: {} tokens each", o.n, i));
    return true;
  });
  timing.seconds = seconds_since(begin);
  const Sampled sampled{loaded, prompt, generated, timing};
  log_progress("");
  pixels ? folder->write(o, sampled) : print_sequences(o, sampled);
}

void add_sampling_options(CLI::App& command, GenerateOptions& o) {
  bounded(command.add_option("--n", o.n, "Sequences, decoded as one batch")->capture_default_str(),
          1, kMostSamples);
  bounded(command.add_option("--length", o.length,
                             "New tokens at most (default: 500, images: their size)"),
          1, kMostTokens);
  bounded(command.add_option("--seed", o.sampling.seed, "Another seed, other sequences")
              ->capture_default_str(),
          0, std::numeric_limits<std::int64_t>::max());
  bounded(
      command
          .add_option("--temperature", o.sampling.temperature, "0: always the most likely token")
          ->capture_default_str(),
      {0, kMostTemperature});
  bounded(command.add_option("--top-k", o.sampling.top_k, "Only the k most likely tokens; 0: all")
              ->capture_default_str(),
          0, kMostTokens);
  bounded(
      command.add_option("--top-p", o.sampling.top_p, "Only the most likely tokens of this mass")
          ->capture_default_str(),
      {0, 1, true});
  command.add_flag("--no-stop", o.no_stop, "Never end a sequence before --length");
}

}  // namespace

void add_generate(CLI::App& app) {
  auto options = std::make_shared<GenerateOptions>();
  auto& o = *options;
  auto* command = app.add_subcommand("generate", "Sample sequences or images from a causal model");
  add_model_options(*command, o.model);
  command->add_option("--prompt", o.prompt, "How each sequence begins");
  add_sampling_options(*command, o);
  command->add_option("-o,--output", o.output, "Folder for images: one PNG file each, and a sheet");
  command->add_flag("--overwrite", o.overwrite, "Replace images that are there already");
  add_placement_options(*command, o.model);
  command->add_flag("--json", o.json, "Print one JSON object");
  command->footer(
      "Proteins are printed as FASTA, text as text, images are files. --json has the times too,\n"
      "the attention's kernel, and whether steps were replayed as a CUDA graph.\n"
      "Examples:\n  performer generate runs/protein --n 3 --length 200 --seed 1\n"
      "  performer generate runs/text --prompt 'It is a truth' --temperature 0.8\n"
      "  performer generate runs/pixels --n 16 -o samples");
  command->callback([options] { run_generate(*options); });
}

}  // namespace performer::cli
