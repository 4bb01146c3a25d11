#include <fmt/format.h>
#include <unistd.h>

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <nlohmann/json.hpp>

#include "performer/cli/generate.h"
#include "performer/core/safe_text.h"

namespace performer::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kFastaWidth = 60;

std::string fasta_record(const std::string& id, const std::string& sequence) {
  std::string text = ">" + id + "\n";
  for (std::size_t i = 0; i < sequence.size(); i += kFastaWidth) {
    text += sequence.substr(i, kFastaWidth) + "\n";
  }
  return text;
}

// A file gets what the model made; a terminal would obey some of it.
std::string for_output(const std::string& text) {
  return isatty(STDOUT_FILENO) != 0 ? printable(text) : text;
}

// The prompt as it was given, and what follows it. Tokenizers that put spaces between tokens, or
// drop the one at the beginning, know of the space there only if they read both at once.
std::string whole_text(const GenerateOptions& o, const Sampled& sampled,
                       const std::vector<std::int64_t>& sequence) {
  const auto& space = sampled.loaded.space;
  const std::string before = space.decode(sampled.prompt);
  auto tokens = sampled.prompt;
  tokens.insert(tokens.end(), sequence.begin(), sequence.end());
  std::string text = space.decode(tokens);
  if (!text.starts_with(before)) return text;  // its end reads otherwise before what follows
  text.erase(0, before.size());
  const bool twice = o.prompt.ends_with(' ') && !before.ends_with(' ') && text.starts_with(' ');
  return o.prompt + text.substr(twice ? 1 : 0);
}

void print_json(const GenerateOptions& o, const Sampled& sampled) {
  Json all = report_of(sampled);
  all["sequences"] = Json::array();
  for (const auto& sequence : sampled.generated.sequences) {
    all["sequences"].push_back(
        {{"text", whole_text(o, sampled, sequence)}, {"tokens", sequence.size()}});
  }
  fmt::print("{}\n", all.dump(-1, ' ', false, Json::error_handler_t::replace));
}

}  // namespace

Json report_of(const Sampled& sampled) {
  const auto& [loaded, prompt, generated, timing] = sampled;
  std::size_t tokens = 0;
  for (const auto& sequence : generated.sequences) tokens += sequence.size();
  return {{"checkpoint", loaded.folder},
          {"step", loaded.step},
          {"tokens", tokens},
          {"seconds", timing.seconds},
          {"tokens_per_second", static_cast<double>(tokens) / timing.seconds},
          {"seconds_at_each_1000", timing.at_each_1000},
          {"kernel", generated.kernel},
          {"graph", generated.graph},
          {"eager_reason", generated.eager_reason}};
}

void print_sequences(const GenerateOptions& o, const Sampled& sampled) {
  if (o.json) {
    print_json(o, sampled);
    return;
  }
  const auto& space = sampled.loaded.space;
  const auto& sequences = sampled.generated.sequences;
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    const auto text = whole_text(o, sampled, sequences[i]);
    if (space.kind == "protein") {
      fmt::print("{}", fasta_record(fmt::format("generated_{} seed={} length={}", i + 1,
                                                o.sampling.seed, text.size()),
                                    text));
    } else {
      fmt::print("{}{}\n", o.n > 1 ? fmt::format("--- {}\n", i + 1) : "", for_output(text));
    }
  }
}

}  // namespace performer::cli
