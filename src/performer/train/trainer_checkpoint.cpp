// How a run begins, goes back and is saved.
#include <ATen/ATen.h>

#include <nlohmann/json.hpp>

#include "performer/core/error.h"
#include "performer/core/log.h"
#include "performer/train/run_state.h"
#include "performer/train/trainer.h"

namespace performer::train {

using Json = nlohmann::ordered_json;

void Trainer::restore() {
  const auto checkpoint = store_.newest_good(
      [](const Error& error) { log_warning("{}; an older checkpoint is used", error.what()); });
  if (checkpoint) {
    check_same_run(recipe_from_json(checkpoint->config(), checkpoint->folder() / "config.json"),
                   recipe_, checkpoint->folder());
    load(*checkpoint);
    if (progress_.overfit != options_.overfit) {
      fail(ExitCode::kUsage,
           "{}: was trained with --overfit {}, now {}; take another --out, or --restart",
           checkpoint->folder().string(), progress_.overfit, options_.overfit);
    }
    saved_step_ = progress_.step;
    const auto best = progress_.best_step > 0 ? std::optional(progress_.best_step) : std::nullopt;
    store_.mend_best(
        best, [](const Error& error) { log_warning("{}; it is written anew", error.what()); });
    store_.forget_after(progress_.step);
    log_info("resuming at step {} from {}", progress_.step, checkpoint->folder().string());
  }
  progress_.overfit = options_.overfit;
  reporter_.start_after(progress_.step);
}

void Trainer::load(const Checkpoint& checkpoint) {
  try {
    const auto json = Json::parse(checkpoint.trainer());
    progress_ = progress_from_json(json);
    guard_.load(json.at("guard"));
    reporter_.load(json.at("reporter"));
    model_->redraw(json.at("draw"));
  } catch (const nlohmann::json::exception& error) {
    fail(ExitCode::kCorrupt, "{}/trainer.json: {}", checkpoint.folder().string(), error.what());
  }
  load_into(checkpoint.model_file(), model_tensors(model_, step_.weights().masters()));
  load_into(checkpoint.trainer_file(), step_.state());
  step_.weights().publish();
}

// The disk may have room again by the next time: training goes on with the old checkpoints.
template <class Write>
bool Trainer::try_to_write(const char* what, const Write& write) {
  try {
    write();
    return true;
  } catch (const Error& error) {
    if (error.code() != ExitCode::kNoSpace) throw;
    log_warning("step {}: {}: {}; training goes on", progress_.step, what, error.what());
    return false;
  }
}

void Trainer::mark_best() {
  try_to_write("best not marked", [&] { store_.mark_best(progress_.step); });
}

void Trainer::save(bool last) {
  settle();
  if (saved_step_ == progress_.step) return;
  CheckpointContent content;
  content.model = model_tensors(model_, step_.weights().masters());
  content.trainer = step_.state();
  content.config_json = recipe_to_json(recipe_);
  content.trainer_json = progress_to_json(
      progress_,
      {{"draw", model_->draw()}, {"guard", guard_.state()}, {"reporter", reporter_.state()}});
  content.tokenizer = tokenizer_files(train_data_->space());
  const auto write = [&] { store_.save(progress_.step, content); };
  if (last) {
    write();  // there is no next time: a failure ends the program as one
  } else if (!try_to_write("not saved", write)) {
    return;
  }
  saved_step_ = progress_.step;
  try_to_write("old checkpoints not removed", [&] {
    store_.prune({recipe_.train.keep_last, recipe_.train.keep_every});
  });
}

void Trainer::forget_earlier_run() {
  store_.clear();
  for (const auto& entry : std::filesystem::directory_iterator(options_.out)) {
    const auto name = entry.path().filename().string();
    if (name == "metrics.jsonl" || name == "loss.svg" || name.starts_with("events.out.tfevents.")) {
      std::filesystem::remove(entry.path());
    }
  }
}

}  // namespace performer::train
