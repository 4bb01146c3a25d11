#pragma once

#include <CLI/App.hpp>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "performer/core/error.h"

/// One function per subcommand: declares its flags on `app` and sets what runs. What a command
/// leaves for the exit code goes to `exit_code`; failures are thrown.
namespace performer::cli {

/// In the environment where the program itself, not its user, chose OMP_WAIT_POLICY.
inline constexpr const char* kOwnWaitPolicy = "PERFORMER_OWN_WAIT_POLICY";

void add_train(CLI::App& app, ExitCode& exit_code);
void add_eval(CLI::App& app);
void add_embed(CLI::App& app);
void add_score(CLI::App& app);
void add_attention(CLI::App& app);
void add_generate(CLI::App& app);
void add_inspect(CLI::App& app);
void add_convert(CLI::App& app);
void add_data(CLI::App& app);
void add_bench(CLI::App& app);

}  // namespace performer::cli
