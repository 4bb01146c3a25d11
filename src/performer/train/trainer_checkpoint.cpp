// How a run begins, goes back and is saved.
#include <ATen/ATen.h>

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "performer/core/error.h"
#include "performer/core/log.h"
#include "performer/run/checkpoint_versions.h"
#include "performer/run/choose_checkpoint.h"
#include "performer/run/initial_weights.h"
#include "performer/run/make_model.h"
#include "performer/train/trainer.h"

namespace performer::train {

using Json = nlohmann::ordered_json;

void Trainer::restore() {
  std::string told;  // the newest is met twice: as `latest`, and by its step
  const auto checkpoint = store_.newest_good([&](const Error& error) {
    if (told != error.what()) log_warning("{}; an older checkpoint is used", error.what());
    told = error.what();
  });
  if (checkpoint) {
    resume_from(*checkpoint);
  } else {
    begin();
  }
}

void Trainer::begin() {
  progress_.data = identify_data();
  progress_.overfit = options_.overfit;
  if (!options_.init.empty()) {
    const auto chosen = run::choose_checkpoint(options_.init, "");
    run::check_initial(chosen.checkpoint, recipe_, token_files_);
    const auto taken =
        run::load_initial(chosen.checkpoint, run::model_tensors(model_, step_.weights().masters()));
    step_.weights().publish();
    progress_.init = chosen.checkpoint.manifest_sha256();
    log_info(
        "init      {}: {} tensors{}", chosen.text(), taken.tensors,
        taken.drawn.empty() ? "" : fmt::format(", as drawn: {}", fmt::join(taken.drawn, ", ")));
    if (!taken.left_out.empty())
      log_info("          left out: {}", fmt::join(taken.left_out, ", "));
  }
  reporter_.start_after(0);
}

// The same command resumes, so the checkpoint is named again, and may be gone by then.
void Trainer::check_same_init(const std::string& place) const {
  if (options_.init.empty()) return;
  const auto named = run::choose_checkpoint(options_.init, "").checkpoint.manifest_sha256();
  if (named == progress_.init) return;
  fail(ExitCode::kUsage,
       "{}: this run began with {}, not with --init {}; leave it out, take "
       "another --out, or --restart",
       place, progress_.init.empty() ? "weights of its own" : "other weights", options_.init);
}

void Trainer::resume_from(const run::Checkpoint& checkpoint) {
  const auto place = checkpoint.folder().string();
  const auto before =
      run::recipe_from_json(checkpoint.config(), place + "/config.json", checkpoint.version());
  auto changes = run::compare_recipes(
      before, recipe_, {place, options_.recipe, checkpoint.step(), options_.changes});
  run::check_same_tokens(checkpoint.tokenizer(), token_files_, place);
  load(checkpoint);
  if (progress_.overfit != options_.overfit) {
    fail(ExitCode::kUsage,
         "{}: was trained with --overfit {}, now {}; take another --out, or --restart", place,
         progress_.overfit, options_.overfit);
  }
  check_same_init(place);
  check_same_data(place, changes);
  const bool other_losses = std::ranges::any_of(changes, run::changes_losses);
  if (other_losses) guard_.reset();
  if (const auto why = unsound()) {
    go_on_before(checkpoint, *why);
    return;
  }
  saved_step_ = proven_step_ = progress_.step;
  const auto best = progress_.best_step > 0 ? std::optional(progress_.best_step) : std::nullopt;
  store_.mend_best(best,
                   [](const Error& error) { log_warning("{}; it is written anew", error.what()); });
  store_.forget_after(progress_.step);
  log_info("resuming at step {} from {}", progress_.step, place);
  reporter_.start_after(progress_.step);
  // Without a step to come nothing is trained with the new values.
  if (progress_.step >= recipe_.train.steps || patience_is_over()) return;
  for (const auto& change : changes) {
    log_info("after step {} {} is {}, no longer {}", change.step, change.key, change.after,
             change.before);
    // Of the next step: a kill before the next save cuts this line, and the change is made again.
    reporter_.event({{"step", change.step + 1},
                     {"event", "change"},
                     {"key", change.key},
                     {"before", parse_json(change.before, change.key)},
                     {"after", parse_json(change.after, change.key)}});
    progress_.changes.push_back(change);
  }
}

// Its bytes are as they were saved, and yet no run saves such weights: they came from elsewhere.
void Trainer::go_on_before(const run::Checkpoint& unusable, const std::string& why) {
  const auto place = unusable.folder().string();
  const auto older = store_.newest_good_up_to(
      unusable.step() - 1, [](const Error& error) { log_warning("{}", error.what()); });
  if (!older) {
    fail(ExitCode::kDiverged, "{}: {}; there is no older checkpoint; begin anew by --restart",
         place, why);
  }
  log_warning("{}: {}; an older checkpoint is used", place, why);
  resume_from(*older);
}

std::map<std::string, run::DataIdentity> Trainer::identify_data() const {
  std::map<std::string, run::DataIdentity> data;
  data.emplace("train", run::identify({train_data_, data::Use::kEvaluation}));
  if (valid_rows_) data.emplace("valid", run::identify(*valid_rows_));
  return data;
}

void Trainer::check_same_data(const std::string& place, std::vector<run::Change>& changes) {
  for (const auto& [split, now] : identify_data()) {
    const auto [entry, added] = progress_.data.emplace(split, now);
    const auto before = std::exchange(entry->second, now);
    if (before == now) continue;
    if (!options_.new_data) {
      fail(
          ExitCode::kUsage,
          "{}: the data of data.{} are no longer those of the run: {} there, {} here; take another "
          "--out, --restart, or go on with them by --new-data",
          place, split, before.text(), now.text());
    }
    changes.push_back(
        {progress_.step, "data." + split, Json(before.text()).dump(), Json(now.text()).dump()});
  }
}

void Trainer::load(const run::Checkpoint& checkpoint) {
  const auto file = (checkpoint.folder() / "trainer.json").string();
  auto values = parse_json(checkpoint.trainer(), file);
  run::complete_trainer(values, checkpoint.version());
  const JsonView json(values, file);
  progress_ = run::progress_from_json(json, checkpoint.step(), checkpoint.version());
  guard_.load(json.at("guard"));
  reporter_.load(json.at("reporter"));
  model_->redraw(json.at("draw").integer(0, UINT32_MAX));
  run::load_into(checkpoint.model_file(), run::model_tensors(model_, step_.weights().masters()));
  run::load_into(checkpoint.trainer_file(), step_.state());
  step_.weights().publish();
}

// Where a run ends, and again where it has ended: a kill between its last save and the pruning has
// left a checkpoint too many. The one before the newest may be that which was proven.
void Trainer::prune_again() {
  try_to_write("old checkpoints not removed", [&] {
    store_.prune({std::max<std::int64_t>(recipe_.train.keep_last, 2),
                  recipe_.train.keep_every,
                  {progress_.regular}});
  });
}

// The disk may have room again by the next time: training goes on with the old checkpoints.
bool Trainer::try_to_write(const char* what, const std::function<void()>& write) {
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

run::CheckpointContent Trainer::content() const {
  run::CheckpointContent content;
  content.model = run::model_tensors(model_, step_.weights().masters());
  content.trainer = step_.state();
  content.config_json = run::recipe_to_json(recipe_);
  content.trainer_json = run::progress_to_json(
      progress_,
      {{"draw", model_->draw()}, {"guard", guard_.state()}, {"reporter", reporter_.state()}});
  content.tokenizer = token_files_;
  return content;
}

bool Trainer::save(const Saving& saving) {
  settle();
  if (saved_step_ == progress_.step) return true;
  if (const auto why = unsound()) {
    if (refusals_++ == 0) {
      log_warning("step {}: not saved: {}; tried again after each step", progress_.step, *why);
    }
    unsound_ = *why;
    regular_owed_ = saving.regular || regular_owed_;
    if (refusals_ > recipe_.guard.max_skipped) diverge(unsound_);
    return false;
  }
  unsound_.clear();
  refusals_ = 0;
  regular_owed_ = false;
  const auto before = progress_;
  if (saving.regular) {
    progress_.regular = progress_.step;
    progress_.rollbacks = 0;
  }
  const auto write = [&] { store_.save(progress_.step, content()); };
  if (saving.last) {
    write();  // there is no next time: a failure ends the program as one
  } else if (!try_to_write("not saved", write)) {
    progress_ = before;
    return true;
  }
  saved_step_ = progress_.step;
  try_to_write("old checkpoints not removed", [&] {
    // No later step has shown yet that the new one is good.
    store_.prune(
        {recipe_.train.keep_last, recipe_.train.keep_every, {proven_step_, progress_.regular}});
  });
  return true;
}

void Trainer::forget_earlier_run() {
  store_.clear();
  for (const auto& entry : std::filesystem::directory_iterator(options_.out)) {
    const auto name = entry.path().filename().string();
    const bool events = name.starts_with("events.out.tfevents.") &&
                        name.find(".performer.") != name.npos;  // not those of other programs
    const bool ours = events || name == "metrics.jsonl" || name == "loss.svg";
    if (ours && !entry.is_directory()) std::filesystem::remove(entry.path());
  }
}

}  // namespace performer::train
