#include <fmt/format.h>

#include <algorithm>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <numbers>
#include <utility>

#include "performer/cli/eval.h"

namespace performer::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string model_row(const std::string& split, std::size_t width, const Json& result) {
  const double loss = result["loss"];
  auto text = fmt::format("{:<{}}{:<12}{:>8.2f} %{:>12.3f}{:>10.4f}{:>10.4f}{:>12}\n", split, width,
                          "model", 100 * result["accuracy"].get<double>(),
                          result["perplexity"].get<double>(), loss, loss / std::numbers::ln2,
                          result["targets"].get<std::int64_t>());
  if (result.contains("word_perplexity")) {
    text += fmt::format("{:<{}}{:<12}{:>10}{:>12.3f}   ({:.4f} tokens a word)\n", "", width,
                        "words", "", result["word_perplexity"].get<double>(),
                        result["word_multiplier"].get<double>());
  }
  return text;
}

std::string baseline_rows(const Json& baselines, std::size_t width) {
  std::string text;
  for (const auto& [name, word] :
       {std::pair{"uniform", "uniform"}, std::pair{"empirical", "frequencies"}}) {
    const auto& baseline = baselines[name];
    text +=
        fmt::format("{:<{}}{:<12}{:>8.2f} %{:>12.3f}", "", width, word,
                    100 * baseline["accuracy"].get<double>(), baseline["perplexity"].get<double>());
    if (baselines.contains("with_eos")) {
      text += fmt::format("   without EOS; {:.3f} with EOS",
                          baselines["with_eos"][name]["perplexity"].get<double>());
    }
    text += "\n";
  }
  return text;
}

// One line where --max-batches left sequences unscored, or the end of the last one.
std::string ended_early(const std::string& split, const Json& result, const Units& units) {
  if (!result.contains("sequences")) return {};
  const auto scored = result["sequences"].get<std::int64_t>();
  const auto all = result["sequences_of_split"].get<std::int64_t>();
  const auto left =
      result["overlap"].is_null() ? 0 : result["residues_left_out"].get<std::int64_t>();
  if (scored == all && left == 0) return {};
  auto text =
      fmt::format("{}: --max-batches ended in {} {} of {}", split, units.whole, scored, all);
  if (left > 0) text += fmt::format("; its last {} {} were left out", left, units.parts);
  return text + "\n";
}

// One line where --max-batches left rows unscored, which the baselines leave out too.
std::string fewer_baselines(const std::string& split, const Json& result) {
  const auto scored = result["samples"].get<std::int64_t>();
  const auto all = result["samples_of_split"].get<std::int64_t>();
  if (!result.contains("baselines") || scored == all) return {};
  return fmt::format("{}: the baselines are those of the {} rows of {} that were scored\n", split,
                     scored, all);
}

// One line where rows were too short for their sequences.
std::string left_out(const std::string& split, const Json& result, const Units& units) {
  if (result.value("residues_left_out", std::int64_t{0}) == 0) return {};
  if (!result["overlap"].is_null()) return {};
  const auto length = result["length"].get<std::int64_t>();
  return fmt::format(
      "{}: {} of {} {} were left out: {} of {} {}s are longer than a row of {} "
      "tokens;\n"
      "  --overlap {} scores them whole, in windows; --length takes longer rows\n",
      split, result["residues_left_out"].get<std::int64_t>(),
      result["residues"].get<std::int64_t>(), units.parts,
      result["sequences_cut"].get<std::int64_t>(), result["sequences"].get<std::int64_t>(),
      units.whole, length, length / 2);
}

}  // namespace

Units units_of(const data::TokenSpace& space) {
  if (space.kind == "protein") return {"sequence", "residues"};
  if (space.kind == "pixels") return {"image", "values"};
  if (space.kind == "bytes") return {"text", "bytes"};
  if (space.kind == "sentencepiece") return {"text", "pieces"};
  if (space.kind == "hf") return {"text", "tokens"};
  return {"sequence", "tokens"};
}

std::string evaluation_text(const Json& splits, const Units& units) {
  std::size_t width = 8;
  for (const auto& [name, result] : splits.items()) {
    width = std::max(width, escaped_field(name).size() + 2);
  }
  auto text = fmt::format("{:<{}}{:<12}{:>10}{:>12}{:>10}{:>10}{:>12}\n", "split", width, "",
                          "accuracy", "perplexity", "loss", "bits", "targets");
  std::string notes;
  for (const auto& [name, result] : splits.items()) {
    const auto split = escaped_field(name);
    text += model_row(split, width, result);
    if (result.contains("baselines")) text += baseline_rows(result["baselines"], width);
    notes += ended_early(split, result, units) + fewer_baselines(split, result) +
             left_out(split, result, units);
  }
  return text + notes;
}

}  // namespace performer::cli
