#include "performer/train/reporter.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "performer/core/log.h"

namespace performer::train {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// JSON knows no NaN; null says that there was no number.
Json number(double value) { return std::isfinite(value) ? Json(value) : Json(); }

std::string duration_text(double seconds) {
  constexpr double kMost = 1e15;  // beyond it nobody waits, and an integer may not hold it
  const auto whole = static_cast<std::int64_t>(std::clamp(seconds, 0.0, kMost));
  if (whole >= 3600) return fmt::format("{} h {:02} m", whole / 3600, whole / 60 % 60);
  if (whole >= 60) return fmt::format("{} m {:02} s", whole / 60, whole % 60);
  return fmt::format("{} s", whole);
}

}  // namespace

Reporter::Reporter(const std::filesystem::path& run_folder, const run::TrainConfig& config)
    : config_(config), folder_(run_folder), started_(Clock::now()), window_started_(started_) {}

void Reporter::start_after(std::int64_t step) {
  const auto warn = [](const std::string& message) { log_warning("{}", message); };
  metrics_.emplace(folder_ / "metrics.jsonl", step > 0 ? step : -1, warn);
  events_.emplace(folder_, EventWriter::Start{wall_time(), step + 1}, warn);
  if (const auto there = metrics_->num_lines(); there < earlier_lines_) {
    log_warning(
        "{}: holds {} of the {} lines that the run had written by step {}; the others are lost, "
        "the run goes on",
        (folder_ / "metrics.jsonl").string(), there, earlier_lines_, step);
  }
  first_step_ = step;
  earlier_seconds_ = metrics_->seconds();
  started_ = window_started_ = Clock::now();
}

void Reporter::set_baselines(const StartBaselines& baselines) {
  frequencies_ = baselines.counted.empirical.perplexity;
  if (first_step_ > 0) return;
  metrics_->append({{"step", 0},
                    {"event", "baselines"},
                    {"uniform_perplexity", baselines.counted.uniform.perplexity},
                    {"frequency_perplexity", frequencies_},
                    {"frequency_loss", number(std::log(frequencies_))}});
}

void Reporter::cut_after(std::int64_t step) { metrics_->cut_after(step); }

void Reporter::add(const StepReport& report) {
  ++steps_taken_;
  tokens_ += report.tokens;
  window_.tokens += report.tokens;
  if (report.skipped) {
    ++window_.skipped;
  } else {
    window_.loss_sum += report.loss_sum;
    window_.correct += report.correct;
    window_.targets += report.targets;
  }
  if (report.step % config_.log_every == 0 || report.step == config_.steps) write_line(report);
}

void Reporter::write_line(const StepReport& last) {
  const auto targets = static_cast<double>(window_.targets);
  const double loss = window_.loss_sum / targets, accuracy = window_.correct / targets;
  const double speed = static_cast<double>(window_.tokens) / seconds_since(window_started_);
  Json line = {{"step", last.step},
               {"loss", number(loss)},
               {"accuracy", number(accuracy)},
               {"rate", last.rate},
               {"gradient_norm", number(last.gradient_norm)},
               {"tokens", tokens_}};
  if (window_.skipped > 0) line["skipped"] = window_.skipped;
  line["seconds"] = earlier_seconds_ + seconds_since(started_);
  line["tokens_per_second"] = speed;
  metrics_->append(line);
  if (window_.targets > 0) {
    scalar("train/loss", last.step, loss);
    scalar("train/perplexity", last.step, std::exp(loss));
    scalar("train/accuracy", last.step, accuracy);
  }
  if (last.finite()) scalar("train/gradient_norm", last.step, last.gradient_norm);
  scalar("train/rate", last.step, last.rate);
  scalar("train/tokens_per_second", last.step, speed);
  const auto left = seconds_since(started_) * static_cast<double>(config_.steps - last.step) /
                    static_cast<double>(steps_taken_);
  const auto beside =
      frequencies_ > 0 ? fmt::format(" (frequencies {:.2f})", frequencies_) : std::string();
  const auto learned = window_.targets > 0
                           ? fmt::format("loss {:.4f}  perplexity {:.2f}{}  accuracy {:.2f} %",
                                         loss, std::exp(loss), beside, 100 * accuracy)
                           : std::string("skipped");
  const auto text = fmt::format("step {}/{}  {}  {:.0f} tokens/s  {} left", last.step,
                                config_.steps, learned, speed, duration_text(left));
  log_is_terminal() ? log_progress(text) : log_line(text);
  window_ = {};
  window_started_ = Clock::now();
}

void Reporter::add(std::int64_t step, const std::string& split,
                   const infer::Evaluation& evaluation) {
  metrics_->append({{"step", step},
                    {split + "_loss", number(evaluation.loss())},
                    {split + "_accuracy", number(evaluation.accuracy())},
                    {split + "_perplexity", number(evaluation.perplexity())},
                    {"targets", evaluation.targets},
                    {"seconds", evaluation.seconds}});
  scalar(split + "/loss", step, evaluation.loss());
  scalar(split + "/perplexity", step, evaluation.perplexity());
  scalar(split + "/accuracy", step, evaluation.accuracy());
  log_info("step {}  {}: loss {:.4f}  perplexity {:.3f}  accuracy {:.2f} %", step, split,
           evaluation.loss(), evaluation.perplexity(), 100 * evaluation.accuracy());
  window_started_ += std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(evaluation.seconds));  // tokens/s is of training alone
}

void Reporter::scalar(const std::string& tag, std::int64_t step, double value) {
  events_->scalar(tag, step, value, wall_time());
}

void Reporter::event(const Json& record) { metrics_->append(record); }

Json Reporter::state() const {
  return {{"tokens", tokens_},
          {"lines", metrics_->num_lines()},
          {"window",
           {{"loss_sum", window_.loss_sum},
            {"correct", window_.correct},
            {"targets", window_.targets},
            {"tokens", window_.tokens},
            {"skipped", window_.skipped}}}};
}

void Reporter::load(const JsonView& state) {
  tokens_ = state.at("tokens").integer(0);
  earlier_lines_ = state.at("lines").integer(0);
  const JsonView window = state.at("window");
  window_.loss_sum = window.at("loss_sum").number();
  window_.correct = window.at("correct").number();
  window_.targets = window.at("targets").integer(0);
  window_.tokens = window.at("tokens").integer(0);
  window_.skipped = window.at("skipped").integer(0);
}

}  // namespace performer::train
