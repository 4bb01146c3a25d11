#include "performer/cli/convert_fit.h"

#include <ATen/ATen.h>

#include <chrono>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "performer/cli/bounds.h"
#include "performer/cli/convert_report.h"
#include "performer/core/error.h"
#include "performer/core/log.h"
#include "performer/core/sha256.h"
#include "performer/data/open_sequences.h"
#include "performer/data/text.h"
#include "performer/infer/twin.h"
#include "performer/models/length_limit.h"
#include "performer/train/stop_signal.h"

namespace performer::cli {
namespace {

constexpr std::int64_t kLinesOfProgress = 10;  // of a stage, where there is no terminal
constexpr std::int64_t kMostSeconds = 86400;   // between saves

class Reporter {
 public:
  void operator()(const fit::Progress& p) {
    if (p.stage == "calibrate") return;
    if (std::exchange(stage_, p.stage) != p.stage) {
      begun_ = std::chrono::steady_clock::now(), begun_at_ = p.step;
    }
    const auto spent = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun_);
    const double left = spent.count() /
                        static_cast<double>(std::max<std::int64_t>(1, p.step - begun_at_)) *
                        static_cast<double>(p.steps - p.step);
    const auto text = fmt::format("fit {}: step {}/{}, loss {:.4f}, {:.0f} s left", p.stage, p.step,
                                  p.steps, p.loss, left);
    if (p.step == p.steps) {
      log_progress("");
      log_info("fit {}: loss {:.4f} to {:.4f} in {} steps, {:.0f} s", p.stage, p.first_loss, p.loss,
               p.steps, spent.count());
    } else if (log_is_terminal()) {
      log_progress(text);
    } else if (p.step % std::max<std::int64_t>(1, p.steps / kLinesOfProgress) == 0) {
      log_info("{}", text);
    }
  }

 private:
  std::string stage_;
  std::chrono::steady_clock::time_point begun_;
  std::int64_t begun_at_ = 0;
};

fit::Samples open_samples(const std::string& path, const data::TokenSpace& space,
                          const fit::Samples::Options& options) {
  if (space.kind == "ids") {
    fail(ExitCode::kUsage,
         "{}: the folder has no tokenizer, so that no text can be read; copy its tokenizer's files "
         "into it",
         path);
  }
  // As in training: line ends are tokens of these models.
  if (space.kind == "bytes" || space.kind == "sentencepiece") {
    const data::BlockDataset text({}, space, data::open_text({path}, space));
    return fit::Samples(*text.whole(), space, options);
  }
  return fit::Samples(*data::open_sequences(path, space), space, options);
}

std::string hash_of(const models::Transformer& model, const run::Recipe& recipe) {
  Sha256 hash;
  hash.update(run::recipe_to_json(recipe));  // features and seed, too
  for (const auto& parameter : model->parameters()) {
    const at::Tensor host = parameter.detach().to(at::kCPU).contiguous();
    hash.update(std::span(static_cast<const std::byte*>(host.const_data_ptr()), host.nbytes()));
  }
  return hash.finish();
}

// Whatever else would end with other bytes.
nlohmann::ordered_json identity_of(const models::Transformer& model, const run::Recipe& recipe,
                                   const fit::Samples& samples, const fit::FitOptions& how,
                                   std::int64_t length) {
  return {{"model", hash_of(model, recipe)},
          {"text", samples.content_hash()},
          {"program", PERFORMER_VERSION},
          {"rows", how.rows},
          {"length", length},
          {"attention steps", how.attention_steps},
          {"model steps", how.model_steps},
          {"weight steps", how.weight_steps}};
}

}  // namespace

void add_fit_options(CLI::App& command, FitCommand& c) {
  c.options.push_back(
      command
          .add_option("--calibrate", c.calibrate,
                      "Text to take moments of queries and keys from: exact identities and optimal "
                      "features, seconds")
          ->type_name("FILE"));
  c.options.push_back(
      command
          .add_option("--fit", c.fit,
                      "Text to fit the features on, without labels, until the model imitates its "
                      "exact attention: minutes (calibrates first)")
          ->type_name("FILE"));
  c.options.push_back(
      command.add_flag("--fit-weights", c.weights, "Then fit all weights, too, at a low rate"));
  c.options.push_back(bounded(
      command.add_option("--fit-steps", c.steps,
                         "Steps of fitting in all (default: 600 of attention, 1000 of the model)"),
      4, kMostSteps));
  c.options.push_back(bounded(
      command.add_option("--fit-rows", c.how.rows, "Rows of text in a step")->capture_default_str(),
      1, kMostRows));
  c.options.push_back(
      bounded(command.add_option("--fit-length", c.length, "Tokens of a row, at most")
                  ->capture_default_str(),
              4, kMostTokens));
  c.options.push_back(
      bounded(command
                  .add_option("--fit-save", c.save_seconds,
                              "Seconds between saves of an unfinished fit, to OUT.partial")
                  ->capture_default_str(),
              0, kMostSeconds));
  c.options.push_back(command.add_flag("--restart", c.restart,
                                       "Begin anew what an interrupted command has begun to fit"));
  add_compute_options(command, c.compute);
}

void check_fit(const FitCommand& c) {
  if (!c.calibrate.empty() && !c.fit.empty()) {
    fail(ExitCode::kUsage, "--calibrate {}: --fit calibrates first, on its own text; leave one out",
         c.calibrate);
  }
  for (const auto* option : c.options) {
    const bool of_fit = option->get_name() != "--calibrate" && option->get_name() != "--fit";
    if (of_fit && option->count() > 0 && !c.asked()) {
      fail(ExitCode::kUsage, "{}: has no effect without --calibrate or --fit", option->get_name());
    }
  }
}

std::filesystem::path unfinished_of(const std::filesystem::path& out) {
  auto name = out.has_filename() ? out : out.parent_path();  // "out/"
  return name += ".partial";
}

void forget_fit(const FitCommand& c, const std::filesystem::path& out) {
  if (!c.fit.empty()) std::filesystem::remove(unfinished_of(out));
}

std::function<pretrained::Files(models::Transformer, const run::Recipe&, const data::TokenSpace&)>
fitting(const FitCommand& c, const std::filesystem::path& out, std::uint64_t seed) {
  return [c, out, seed](models::Transformer model, const run::Recipe& recipe,
                        const data::TokenSpace& space) {
    const auto device = prepare(c.compute);
    const auto limit = models::length_limit(recipe.model);
    const auto length = limit > 0 ? std::min(limit, c.length) : c.length;
    const auto samples = open_samples(c.fit.empty() ? c.calibrate : c.fit, space, {length, seed});
    log_info("text      {} tokens, rows of {} at most", samples.tokens(), length);
    auto exact = infer::twin_of(model, infer::exact_recipe(recipe));
    exact->to(device), model->to(device);
    ConvertReport report(exact, model, recipe, samples);
    auto how = c.how;
    if (c.steps > 0) {
      how.attention_steps = c.steps * 3 / 8;
      how.model_steps = c.steps - how.attention_steps;
    }
    if (c.weights) how.weight_steps = how.model_steps;
    how.progress = Reporter();
    if (c.fit.empty()) {
      fit::Fit fit(exact, model, samples, how);
      fit.calibrate(), fit.round();
    } else {
      fit::Unfinished unfinished(unfinished_of(out),
                                 identity_of(model, recipe, samples, how, length), c.restart);
      const train::StopSignal signal;
      how.unfinished = &unfinished, how.save_seconds = static_cast<double>(c.save_seconds);
      how.stop = [&] { return signal.requested() != 0; };
      fit::Fit fit(exact, model, samples, how);
      fit.calibrate(), fit.fit_attention(), fit.fit_model(), fit.round();
    }
    auto files = report.files(c.fit.empty() ? "calibrated" : "fitted");
    model->to(at::kCPU);
    return files;
  };
}

}  // namespace performer::cli
