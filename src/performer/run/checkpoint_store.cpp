#include "performer/run/checkpoint_store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <limits>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "performer/run/checkpoint_folders.h"
#include "performer/run/checkpoint_writer.h"
#include "performer/run/finite.h"

namespace performer::run {
namespace {

namespace fs = std::filesystem;

FileDescriptor lock_run(const fs::path& run) {
  const fs::path file = run / ".lock";
  FileDescriptor lock(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (lock.get() < 0) {
    fail_write(file, errno);
  }
  // File systems without locks give other errors: there the user must take care.
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    fail(ExitCode::kFailure, "{}: another training run is writing here; name another folder",
         run.string());
  }
  return lock;
}

// Puts folder `from` in the place of folder `to`. Where the file system cannot exchange the two at
// once, the old one waits under the name `aside`, from where clear_leftovers() would bring it back.
void exchange(const fs::path& from, const fs::path& to, const fs::path& aside) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0) {
    return;
  }
  if (errno != EINVAL && errno != ENOSYS && errno != EOPNOTSUPP) {
    fail_write(to, errno);
  }
  rename_path(to, aside);
  try {
    rename_path(from, to);
  } catch (const Error&) {
    rename_path(aside, to);
    throw;
  }
  remove_tree(aside);
}

// What a restart removes was made by a run; what stands in its place is somebody's.
void check_kind(const fs::path& path, fs::file_type kind) {
  std::error_code unknown;
  const auto found = fs::symlink_status(path, unknown).type();
  if (found == kind || found == fs::file_type::not_found) return;
  fail(ExitCode::kNoSpace, "{}: is no {} that a run has made, and is not removed; move it away",
       path.string(), kind == fs::file_type::regular ? "file" : "folder");
}

void check_numbers(const Checkpoint& checkpoint) {
  check_finite(checkpoint.model_file());
  check_finite(checkpoint.trainer_file());
}

// Removes a temporary folder when a save ends, well or not.
struct Remover {
  explicit Remover(fs::path folder) : path(std::move(folder)) {}
  ~Remover() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
  Remover(const Remover&) = delete;
  Remover& operator=(const Remover&) = delete;
  fs::path path;
};

}  // namespace

CheckpointStore::CheckpointStore(fs::path run_folder)
    : run_(std::move(run_folder)), checkpoints_(run_ / "checkpoints") {
  make_folder(run_);
  make_folder(checkpoints_);
  lock_ = lock_run(run_);
  clear_leftovers(checkpoints_);
  fsync_folder(run_);
}

fs::path CheckpointStore::temporary(std::int64_t step) const {
  return checkpoints_ / temporary_name(step);
}

void CheckpointStore::save(std::int64_t step, const CheckpointContent& content) {
  const Remover folder(temporary(step));
  remove_tree(folder.path);
  make_folder(folder.path);
  const std::string manifest_sha256 = write_checkpoint(folder.path, step, content);
  put_in_place(folder.path, step);
  fsync_folder(checkpoints_);
  write_file_atomic(run_ / "latest", pointer_text({step, manifest_sha256}));
}

void CheckpointStore::put_in_place(const fs::path& temporary, std::int64_t step) {
  const fs::path home = checkpoint_folder(run_, step);
  if (!is_there(home)) {
    rename_path(temporary, home);
    return;
  }
  // A `best` that names this step means the bytes that leave now.
  const bool same =
      is_there(home / "manifest.json") && hash_of_manifest(temporary) == hash_of_manifest(home);
  if (!same && pointed_step("best") == step) {
    remove_tree(run_ / "best");
  }
  exchange(temporary, home, checkpoints_ / replaced_name(step));
}

std::optional<std::int64_t> CheckpointStore::pointed_step(const char* pointer) const {
  const fs::path file = run_ / pointer;
  if (!is_there(file)) {
    return std::nullopt;
  }
  return read_pointer(file).step;
}

std::optional<Checkpoint> CheckpointStore::newest_good(
    const std::function<void(const Error&)>& rejected) const {
  if (steps().empty() && !is_there(run_ / "latest")) {
    return std::nullopt;
  }
  try {
    Checkpoint checkpoint = open_pointed(run_, "latest");
    check_numbers(checkpoint);
    return checkpoint;
  } catch (const Error& error) {
    rejected(error);
  }
  if (auto older = newest_good_up_to(std::numeric_limits<std::int64_t>::max(), rejected)) {
    return older;
  }
  fail(ExitCode::kCorrupt,
       "{}: no checkpoint of this run verifies; to start anew, move the folder away",
       run_.string());
}

std::optional<Checkpoint> CheckpointStore::newest_good_up_to(
    std::int64_t step, const std::function<void(const Error&)>& rejected) const {
  auto candidates = steps();
  std::reverse(candidates.begin(), candidates.end());
  for (const std::int64_t candidate : candidates) {
    if (candidate > step) continue;
    try {
      Checkpoint checkpoint = Checkpoint::open(checkpoint_folder(run_, candidate));
      check_numbers(checkpoint);
      return checkpoint;
    } catch (const Error& error) {
      rejected(error);
    }
  }
  return std::nullopt;
}

void CheckpointStore::go_back_to(const Checkpoint& checkpoint) {
  write_file_atomic(run_ / "latest",
                    pointer_text({checkpoint.step(), checkpoint.manifest_sha256()}));
  forget_after(checkpoint.step());
}

std::optional<std::int64_t> CheckpointStore::take_back(std::int64_t step) {
  const auto older = newest_good_up_to(step - 1, [](const Error&) {});
  if (older) {
    go_back_to(*older);
    return older->step();
  }
  remove_tree(run_ / "latest");
  forget_after(step - 1);
  return std::nullopt;
}

void CheckpointStore::clear() {
  const auto all = steps();
  for (const std::int64_t step : all) {
    check_kind(checkpoint_folder(run_, step), fs::file_type::directory);
  }
  for (const char* pointer : {"latest", "best"}) {
    check_kind(run_ / pointer, fs::file_type::regular);
  }
  for (const char* pointer : {"latest", "best"}) {
    remove_tree(run_ / pointer);
  }
  for (const std::int64_t step : all) remove(step);
}

void CheckpointStore::mend_best(std::optional<std::int64_t> step,
                                const std::function<void(const Error&)>& rejected) {
  std::optional<std::int64_t> named;
  try {
    named = pointed_step("best");
  } catch (const Error& error) {
    std::error_code unknown;
    if (fs::is_directory(run_ / "best", unknown)) throw;  // not ours: perhaps somebody's copy
    rejected(error);
    remove_tree(run_ / "best");
  }
  if (step && named != step && is_there(checkpoint_folder(run_, *step))) {
    mark_best(*step);
  }
}

void CheckpointStore::mark_best(std::int64_t step) {
  const std::string hash = hash_of_manifest(checkpoint_folder(run_, step));
  write_file_atomic(run_ / "best", pointer_text({step, hash}));
}

std::vector<std::int64_t> CheckpointStore::steps() const { return saved_steps(checkpoints_); }

// Renamed first: a kill half-way must not leave a checkpoint with missing files.
void CheckpointStore::remove(std::int64_t step) {
  const fs::path trash = temporary(step);
  rename_path(checkpoint_folder(run_, step), trash);
  remove_tree(trash);
}

std::vector<std::int64_t> CheckpointStore::prune(const PruneRule& rule) {
  const auto all = steps();
  const std::set<std::optional<std::int64_t>> kept{pointed_step("latest"), pointed_step("best")};
  const auto last = std::max<std::int64_t>(rule.keep_last, 1);
  std::vector<std::int64_t> removed;
  for (std::size_t i = 0; i + static_cast<std::size_t>(last) < all.size(); ++i) {
    const bool periodic = rule.keep_every > 0 && all[i] % rule.keep_every == 0;
    if (!periodic && !kept.contains(all[i]) && !rule.also.contains(all[i])) {
      remove(all[i]);
      removed.push_back(all[i]);
    }
  }
  return removed;
}

void CheckpointStore::forget_after(std::int64_t step) {
  const auto best = pointed_step("best");
  for (const std::int64_t other : steps()) {
    if (other > step && other != best) {
      remove(other);
    }
  }
}

}  // namespace performer::run
