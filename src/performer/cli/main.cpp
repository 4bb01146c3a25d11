#include <ATen/Context.h>
#include <c10/util/Exception.h>
#include <unistd.h>

#include <algorithm>
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <new>
#include <span>
#include <string>
#include <string_view>

#include "performer/cli/command_words.h"
#include "performer/cli/commands.h"
#include "performer/cli/standard_handles.h"
#include "performer/core/error.h"
#include "performer/core/log.h"

namespace {

using performer::ExitCode;

constexpr std::string_view kTakeLess =
    "take a smaller train.batch or data.length, or a smaller --batch, --length or --n";

int report(ExitCode code, std::string_view message) {
  performer::log_info("performer: {}", message);
  return static_cast<int>(code);
}

int out_of_memory() {
  return report(ExitCode::kOutOfMemory, fmt::format("out of memory; {}", kTakeLess));
}

int finished(ExitCode code) {
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    return report(ExitCode::kNoSpace, "standard output: cannot be written");
  }
  return static_cast<int>(code);
}

std::string_view first_line(std::string_view text) { return text.substr(0, text.find('\n')); }

// Threads of OpenMP spin while they wait for each other, which costs a time slice per operator as
// soon as another process wants a core: training became 20 times slower. They are told to sleep
// instead, which must be said before their library is loaded.
void let_idle_threads_sleep(char** argv) {
  if (std::getenv("OMP_WAIT_POLICY") != nullptr || std::getenv("GOMP_SPINCOUNT") != nullptr) return;
  setenv("OMP_WAIT_POLICY", "passive", 0);
  setenv(performer::cli::kOwnWaitPolicy, "1", 1);
  execv("/proc/self/exe", argv);  // returns only where there is no /proc: then as it is
}

ExitCode run(int argc, char** argv, CLI::App& app) {
  auto code = ExitCode::kOk;
  performer::cli::add_train(app, code);
  performer::cli::add_eval(app);
  performer::cli::add_embed(app);
  performer::cli::add_score(app);
  performer::cli::add_attention(app);
  performer::cli::add_generate(app);
  performer::cli::add_inspect(app);
  performer::cli::add_convert(app);
  performer::cli::add_data(app);
  performer::cli::add_bench(app);
  const std::span<char* const> arguments(argv, static_cast<std::size_t>(argc));
  performer::cli::check_command_words(
      app, arguments.subspan(std::min<std::size_t>(1, arguments.size())));
  app.parse(argc, argv);
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  performer::cli::open_closed_handles();
  let_idle_threads_sleep(argv);
  std::signal(SIGXFSZ, SIG_IGN);  // a limit on file sizes is met like a full disk
  CLI::App app{"Train, evaluate and sample Performers: proteins, text, pixels.", "performer"};
  app.require_subcommand(1);
  app.set_version_flag("--version", std::string("performer ") + PERFORMER_VERSION);
  app.footer(
      "performer COMMAND --help explains each command, with examples. The first ones:\n"
      "  performer train configs/demo/softmax.toml --out runs/first\n"
      "  performer eval runs/first --baselines\n"
      "  performer generate runs/first --n 3 --length 120\n"
      "Not there yet: " +
      performer::cli::planned_commands() +
      ".\n"
      "Exit codes: 0 ok, 1 failure, 2 usage or recipe, 3 bad input, 4 corrupt file, 5 no space,\n"
      "6 out of memory, 7 diverged, 9 preempted and saved.\n");
  try {
    return finished(run(argc, argv, app));
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {  // --help, --version
      app.exit(error);
      std::cout.flush();
      return finished(ExitCode::kOk);
    }
    return report(ExitCode::kUsage, performer::cli::explain(app, error));
  } catch (const performer::Error& error) {
    return report(error.code(), error.what());
  } catch (const c10::OutOfMemoryError& error) {
    return report(ExitCode::kOutOfMemory,
                  fmt::format("out of device memory: {}; {}",
                              first_line(error.what_without_backtrace()), kTakeLess));
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  } catch (const c10::Error& error) {
    const std::string_view text = error.what_without_backtrace();
    if (text.find("can't allocate memory") != std::string_view::npos) return out_of_memory();
    return report(ExitCode::kFailure, first_line(error.what_without_backtrace()));
  } catch (const std::exception& error) {
    return report(ExitCode::kFailure, first_line(error.what()));
  }
}
