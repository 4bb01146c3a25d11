#include <ATen/Parallel.h>
#include <dlfcn.h>
#include <unistd.h>

#include <cerrno>
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "performer/cli/bench.h"
#include "performer/cli/commands.h"
#include "performer/core/error.h"
#include "performer/ops/last_kernel.h"

// Half of the peers exist in Python alone (torch.compile, other packages), so the measuring and its
// options live in bench/attention.py; this command starts it.
namespace performer::cli {
namespace {

namespace fs = std::filesystem;

/// The shared library that holds `function`.
template <class Function>
fs::path library_of(Function* function) {
  Dl_info info{};
  if (dladdr(reinterpret_cast<void*>(function), &info) == 0) return {};
  return fs::absolute(info.dli_fname);
}

/// PERFORMER_PYTHON, else the Python whose torch this program runs with:
/// PREFIX/lib/pythonX.Y/site-packages/torch/lib/libtorch_cpu.so -> PREFIX/bin/python3.
std::string find_python() {
  if (const char* chosen = std::getenv("PERFORMER_PYTHON"); chosen != nullptr && *chosen != '\0') {
    return chosen;
  }
  const auto torch = library_of(&at::get_num_threads);
  const auto packages = torch.parent_path().parent_path().parent_path();
  if (packages.filename() == "site-packages" || packages.filename() == "dist-packages") {
    const auto python = packages.parent_path().parent_path().parent_path() / "bin" / "python3";
    if (access(python.c_str(), X_OK) == 0) return python.string();
  }
  fail(ExitCode::kFailure,
       "bench attention: no Python found beside {}; name one that has this torch and the performer "
       "package by PERFORMER_PYTHON",
       torch.string());
}

/// Of a build tree ROOT/build, whose library has the build's record beside it.
bool is_build(const fs::path& folder) { return fs::exists(folder / "performer_build.json"); }

/// `bench`, a link of the build folder to that of the tree, else PREFIX/share/performer/bench.
fs::path find_bench() {
  const auto folder = fs::read_symlink("/proc/self/exe").parent_path();
  auto bench = is_build(folder) ? folder / "bench" : folder.parent_path() / "share/performer/bench";
  bench /= "attention.py";
  if (fs::exists(bench)) return bench;
  fail(ExitCode::kFailure,
       "bench attention: {} is not there; it belongs to the source tree, and `make install` copies "
       "it beside the program",
       bench.string());
}

/// In a build tree, Python takes this tree's package and this build's library.
void prefer_build_tree() {
  const auto library = library_of(&performer::last_kernel);
  const auto folder = library.parent_path();
  if (!is_build(folder)) return;
  setenv("PERFORMER_LIBRARY", library.c_str(), 0);
  const auto package = fs::canonical(folder / "bench").parent_path() / "python";
  if (!fs::exists(package / "performer")) return;
  const char* path = std::getenv("PYTHONPATH");
  const std::string rest = path == nullptr || *path == '\0' ? "" : std::string(":") + path;
  setenv("PYTHONPATH", (package.string() + rest).c_str(), 1);
}

/// Peers are measured as their users run them: sleeping threads slow down code of many short loops,
/// such as torch.compile's.
void restore_wait_policy() {
  if (std::getenv(kOwnWaitPolicy) == nullptr) return;
  unsetenv("OMP_WAIT_POLICY");
  unsetenv(kOwnWaitPolicy);
}

void run_bench_attention(const std::vector<std::string>& arguments) {
  std::vector<std::string> words{find_python(), find_bench().string()};
  words.insert(words.end(), arguments.begin(), arguments.end());
  prefer_build_tree();
  restore_wait_policy();
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (auto& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  execvp(argv[0], argv.data());
  fail(ExitCode::kFailure, "bench attention: cannot start {}: {}", words[0], std::strerror(errno));
}

}  // namespace

void add_bench_attention(CLI::App& bench) {
  auto* command = bench.add_subcommand("attention", "Attention operators and their peers");
  command->set_help_flag("");  // Python's parser declares the options and explains them
  command->prefix_command();
  command->callback([command] { run_bench_attention(command->remaining()); });
}

}  // namespace performer::cli
