#include <chrono>
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "performer/cli/commands.h"
#include "performer/cli/device.h"
#include "performer/core/log.h"
#include "performer/train/generate.h"
#include "performer/train/load_model.h"
#include "performer/train/precision.h"
#include "performer/train/run_state.h"

namespace performer::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::string checkpoint, prompt, device = "auto", precision = "fp32";
  std::int64_t n = 5, width = 60;
  train::SamplingOptions sampling;
  bool json = false, no_stop = false;
};

void check(const Options& o) {
  const auto require = [](bool ok, const char* flag, const char* rule, auto value) {
    if (!ok) fail(ExitCode::kUsage, "{}: must be {}, got {}", flag, rule, value);
  };
  require(o.n >= 1, "--n", "at least 1", o.n);
  require(o.sampling.length >= 1, "--length", "at least 1", o.sampling.length);
  require(o.sampling.temperature >= 0, "--temperature", "0 or more", o.sampling.temperature);
  require(o.sampling.top_k >= 0, "--top-k", "0 or more", o.sampling.top_k);
  require(o.sampling.top_p > 0 && o.sampling.top_p <= 1, "--top-p", "in (0, 1]", o.sampling.top_p);
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

std::string fasta_record(const std::string& id, const std::string& sequence, std::int64_t width) {
  std::string text = ">" + id + "\n";
  for (std::size_t i = 0; i < sequence.size(); i += static_cast<std::size_t>(width)) {
    text += sequence.substr(i, static_cast<std::size_t>(width)) + "\n";
  }
  return text;
}

struct Timing {
  double seconds;
  std::vector<double> at_each_1000;
};

void print_json(const Options& o, const train::LoadedModel& loaded,
                const train::Generated& generated, const Timing& timing) {
  Json all = {{"checkpoint", loaded.folder}, {"step", loaded.step}};
  std::size_t tokens = 0;
  for (const auto& sequence : generated.sequences) tokens += sequence.size();
  all["tokens"] = tokens;
  all["seconds"] = timing.seconds;
  all["tokens_per_second"] = static_cast<double>(tokens) / timing.seconds;
  all["seconds_at_each_1000"] = timing.at_each_1000;
  all["kernel"] = generated.kernel;
  all["graph"] = generated.graph;
  all["eager_reason"] = generated.eager_reason;
  all["sequences"] = Json::array();
  for (const auto& sequence : generated.sequences) {
    all["sequences"].push_back(
        {{"text", o.prompt + loaded.space.decode(sequence)}, {"tokens", sequence.size()}});
  }
  fmt::print("{}\n", all.dump(-1, ' ', false, Json::error_handler_t::replace));
}

void print_text(const Options& o, const data::TokenSpace& space,
                const train::Generated& generated) {
  for (std::size_t i = 0; i < generated.sequences.size(); ++i) {
    const auto text = o.prompt + space.decode(generated.sequences[i]);
    if (space.kind == "protein") {
      fmt::print("{}", fasta_record(fmt::format("generated_{} seed={} length={}", i + 1,
                                                o.sampling.seed, text.size()),
                                    text, o.width));
    } else {
      fmt::print("{}{}\n", o.n > 1 ? fmt::format("--- {}\n", i + 1) : "", text);
    }
  }
}

void run(const Options& o) {
  check(o);
  const auto device = parse_device(o.device);
  auto loaded = train::load_model(o.checkpoint, device, train::parse_precision(o.precision));
  const auto& space = loaded.space;
  auto sampling = o.sampling;
  sampling.stop = o.no_stop ? -1 : space.eos;
  sampling.forbidden = train::never_generated(space);
  if (o.no_stop && space.eos >= 0) sampling.forbidden.push_back(space.eos);
  std::vector<std::int64_t> prompt = {space.start};
  const auto words = space.encode(o.prompt);
  prompt.insert(prompt.end(), words.begin(), words.end());
  const auto begin = std::chrono::steady_clock::now();
  std::vector<double> thousands;  // seconds at each thousandth token of a sequence
  const auto generated = train::generate(loaded.model, prompt, sampling, o.n, [&](std::int64_t i) {
    if (i % 1000 == 0) thousands.push_back(seconds_since(begin));
    if (i % 256 == 0) log_progress(fmt::format("{} sequences: {} tokens each", o.n, i));
    return true;
  });
  const Timing timing{seconds_since(begin), thousands};
  if (o.json) {
    print_json(o, loaded, generated, timing);
  } else {
    print_text(o, space, generated);
  }
}

}  // namespace

void add_generate(CLI::App& app) {
  auto options = std::make_shared<Options>();
  auto* command = app.add_subcommand("generate", "Sample sequences from a causal model");
  command->add_option("checkpoint", options->checkpoint, "Run folder or checkpoint folder")
      ->required();
  command->add_option("--prompt", options->prompt, "How each sequence begins");
  command->add_option("--n", options->n, "Sequences, decoded as one batch")->capture_default_str();
  command->add_option("--length", options->sampling.length, "New tokens at most")
      ->capture_default_str();
  command->add_option("--seed", options->sampling.seed, "Another seed, other sequences")
      ->capture_default_str();
  command
      ->add_option("--temperature", options->sampling.temperature,
                   "0: always the most likely token")
      ->capture_default_str();
  command->add_option("--top-k", options->sampling.top_k, "Only the k most likely tokens; 0: all")
      ->capture_default_str();
  command
      ->add_option("--top-p", options->sampling.top_p, "Only the most likely tokens of this mass")
      ->capture_default_str();
  command->add_flag("--no-stop", options->no_stop, "Never end a sequence before --length");
  command->add_option("--precision", options->precision, "fp32, bf16 or fp16")
      ->capture_default_str();
  command->add_option("--device", options->device, "cpu, cuda, cuda:1 or auto")
      ->capture_default_str();
  command->add_flag("--json", options->json, "Print one JSON object");
  command->footer(
      "Proteins are printed as FASTA, text as text. --json has the times too, the attention's "
      "kernel,\n"
      "and whether steps were replayed as a CUDA graph.\n"
      "Examples:\n  performer generate runs/protein --n 3 --length 200 --seed 1\n"
      "  performer generate runs/text --prompt 'It is a truth' --temperature 0.8");
  command->callback([options] { run(*options); });
}

}  // namespace performer::cli
