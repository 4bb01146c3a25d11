#include "performer/train/checkpoint_store.h"

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

#include "performer/train/checkpoint_writer.h"
#include "performer/train/finite.h"

namespace performer::train {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTemporary = ".tmp-";
// A checkpoint on its way out, where the file system cannot exchange two folders at once.
constexpr std::string_view kReplaced = ".old-";

void make_folder(const fs::path& folder) {
  std::error_code error;
  const bool made = fs::create_directories(folder, error);
  if (error) {
    fail_write(folder, error.value());
  }
  if (made && folder.has_parent_path()) {
    fsync_folder(folder.parent_path());
  }
}

void remove_tree(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) {
    fail_write(path, error.value());
  }
}

std::vector<fs::path> entries_of(const fs::path& folder) {
  std::vector<fs::path> entries;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    entries.push_back(entry->path());
  }
  if (error) {
    fail(ExitCode::kBadInput, "{}: cannot be read: {}", folder.string(), error.message());
  }
  return entries;
}

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

// What kills have left: temporary things go; a replaced checkpoint comes back if its successor has
// not arrived.
void clean(const fs::path& folder) {
  for (const fs::path& path : entries_of(folder)) {
    const std::string name = path.filename().string();
    if (name.starts_with(kTemporary)) {
      remove_tree(path);
    } else if (name.starts_with(kReplaced)) {
      const fs::path home = folder / name.substr(kReplaced.size());
      if (fs::exists(home)) {
        remove_tree(path);
      } else {
        rename_path(path, home);
      }
    }
  }
}

// Puts folder `from` in the place of folder `to`. Where the file system cannot exchange the two at
// once, the old one waits under the name `aside`, from where clean() would bring it back.
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
  clean(run_);
  clean(checkpoints_);
  fsync_folder(run_);
}

fs::path CheckpointStore::temporary(std::int64_t step) const {
  return checkpoints_ / fmt::format("{}{}-{}", kTemporary, step_name(step), ::getpid());
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
  if (!fs::exists(home)) {
    rename_path(temporary, home);
    return;
  }
  // A `best` that names this step means the bytes that leave now.
  const bool same = fs::is_regular_file(home / "manifest.json") &&
                    hash_of_manifest(temporary) == hash_of_manifest(home);
  if (!same && pointed_step("best") == step) {
    remove_tree(run_ / "best");
  }
  exchange(temporary, home, checkpoints_ / (std::string(kReplaced) + step_name(step)));
}

std::optional<std::int64_t> CheckpointStore::pointed_step(const char* pointer) const {
  const fs::path file = run_ / pointer;
  if (!fs::exists(file)) {
    return std::nullopt;
  }
  return read_pointer(file).step;
}

std::optional<Checkpoint> CheckpointStore::newest_good(
    const std::function<void(const Error&)>& rejected) const {
  if (steps().empty() && !fs::exists(run_ / "latest")) {
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
  for (const char* pointer : {"latest", "best"}) {
    remove_tree(run_ / pointer);
  }
  remove_tree(checkpoints_);
  make_folder(checkpoints_);
}

void CheckpointStore::mend_best(std::optional<std::int64_t> step,
                                const std::function<void(const Error&)>& rejected) {
  std::optional<std::int64_t> named;
  try {
    named = pointed_step("best");
  } catch (const Error& error) {
    if (fs::is_directory(run_ / "best")) throw;  // not ours: perhaps somebody's copy
    rejected(error);
    remove_tree(run_ / "best");
  }
  if (step && named != step && fs::exists(checkpoint_folder(run_, *step))) {
    mark_best(*step);
  }
}

void CheckpointStore::mark_best(std::int64_t step) {
  const std::string hash = hash_of_manifest(checkpoint_folder(run_, step));
  write_file_atomic(run_ / "best", pointer_text({step, hash}));
}

std::vector<std::int64_t> CheckpointStore::steps() const {
  std::vector<std::int64_t> steps;
  for (const fs::path& path : entries_of(checkpoints_)) {
    if (const auto step = parse_step_name(path.filename().string())) {
      steps.push_back(*step);
    }
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

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

}  // namespace performer::train
