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

void print_json(const GenerateOptions& o, const Sampled& sampled) {
  Json all = report_of(sampled);
  all["sequences"] = Json::array();
  for (const auto& sequence : sampled.generated.sequences) {
    all["sequences"].push_back(
        {{"text", o.prompt + sampled.loaded.space.decode(sequence)}, {"tokens", sequence.size()}});
  }
  fmt::print("{}\n", all.dump(-1, ' ', false, Json::error_handler_t::replace));
}

}  // namespace

Json report_of(const Sampled& sampled) {
  const auto& [loaded, generated, timing] = sampled;
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
    const auto text = o.prompt + space.decode(sequences[i]);
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
