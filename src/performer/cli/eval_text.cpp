#include <fmt/format.h>

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <numbers>

#include "performer/cli/eval.h"

namespace performer::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string model_row(const std::string& split, const Json& result) {
  const double loss = result["loss"];
  auto text =
      fmt::format("{:<8}{:<12}{:>8.2f} %{:>12.3f}{:>10.4f}{:>10.4f}{:>12}\n", split, "model",
                  100 * result["accuracy"].get<double>(), result["perplexity"].get<double>(), loss,
                  loss / std::numbers::ln2, result["targets"].get<std::int64_t>());
  if (result.contains("word_perplexity")) {
    text += fmt::format("{:<8}{:<12}{:>10}{:>12.3f}   ({:.4f} tokens a word)\n", "", "words", "",
                        result["word_perplexity"].get<double>(),
                        result["word_multiplier"].get<double>());
  }
  return text;
}

std::string baseline_rows(const Json& baselines) {
  std::string text;
  for (const char* name : {"uniform", "empirical"}) {
    const auto& baseline = baselines[name];
    text +=
        fmt::format("{:<8}{:<12}{:>8.2f} %{:>12.3f}", "", name,
                    100 * baseline["accuracy"].get<double>(), baseline["perplexity"].get<double>());
    if (baselines.contains("with_eos")) {
      text += fmt::format("   EOS apart; {:.3f} with it",
                          baselines["with_eos"][name]["perplexity"].get<double>());
    }
    text += "\n";
  }
  return text;
}

// One line where --max-batches left sequences unscored, or the end of the last one.
std::string ended_early(const std::string& split, const Json& result) {
  if (!result.contains("sequences")) return {};
  const auto scored = result["sequences"].get<std::int64_t>();
  const auto all = result["sequences_of_split"].get<std::int64_t>();
  const auto left =
      result["overlap"].is_null() ? 0 : result["residues_left_out"].get<std::int64_t>();
  if (scored == all && left == 0) return {};
  auto text = fmt::format("{}: --max-batches ended in sequence {} of {}", split, scored, all);
  if (left > 0) text += fmt::format("; its last {} residues were left out", left);
  return text + "\n";
}

// One line where rows were too short for their sequences.
std::string left_out(const std::string& split, const Json& result) {
  if (result.value("residues_left_out", std::int64_t{0}) == 0) return {};
  if (!result["overlap"].is_null()) return {};
  const auto length = result["length"].get<std::int64_t>();
  return fmt::format(
      "{}: {} of {} residues were left out: {} of {} sequences are longer than a row of {} "
      "tokens;\n"
      "  --overlap {} scores them whole, in windows; --length takes longer rows\n",
      split, result["residues_left_out"].get<std::int64_t>(),
      result["residues"].get<std::int64_t>(), result["sequences_cut"].get<std::int64_t>(),
      result["sequences"].get<std::int64_t>(), length, length / 2);
}

}  // namespace

std::string evaluation_text(const Json& splits) {
  auto text = fmt::format("{:<8}{:<12}{:>10}{:>12}{:>10}{:>10}{:>12}\n", "split", "", "accuracy",
                          "perplexity", "loss", "bits", "targets");
  std::string notes;
  for (const auto& [split, result] : splits.items()) {
    text += model_row(split, result);
    if (result.contains("baselines")) text += baseline_rows(result["baselines"]);
    notes += ended_early(split, result) + left_out(split, result);
  }
  return text + notes;
}

}  // namespace performer::cli
