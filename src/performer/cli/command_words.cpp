#include "performer/cli/command_words.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "performer/core/error.h"
#include "performer/core/nearest.h"

namespace performer::cli {
namespace {

constexpr std::array<std::string_view, 6> kPlanned = {"embed",     "score",   "inspect",
                                                      "attention", "convert", "reproduce"};

std::vector<std::string> names_of_commands(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(command->get_name());
  }
  return names;
}

std::vector<std::string> names_of_options(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const auto& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

// "performer data": how the command is called.
std::string path_of(const CLI::App& app) {
  const CLI::App* parent = app.get_parent();
  return parent == nullptr ? app.get_name() : path_of(*parent) + " " + app.get_name();
}

// "data: " before what is wrong below it; nothing for the program itself.
std::string prefix_of(const CLI::App& app) {
  const auto path = path_of(app);
  const auto space = path.find(' ');
  return space == std::string::npos ? std::string() : path.substr(space + 1) + ": ";
}

std::string suggestion(const std::string& word, const std::vector<std::string>& names) {
  const auto near = nearest_name(word, names);
  return near.empty() ? std::string() : fmt::format("did you mean {}? ", near);
}

[[noreturn]] void refuse(const CLI::App& app, const std::string& word) {
  const auto names = names_of_commands(app);
  const bool planned = app.get_parent() == nullptr &&
                       std::find(kPlanned.begin(), kPlanned.end(), word) != kPlanned.end();
  if (planned) {
    fail(ExitCode::kUsage, "{}: this command is not there yet; there are {}", word,
         fmt::join(names, ", "));
  }
  fail(ExitCode::kUsage, "{}unknown command '{}'; {}{} --help lists the commands", prefix_of(app),
       word, suggestion(word, names), path_of(app));
}

// The command that was being read.
const CLI::App& innermost(const CLI::App& app) {
  const auto parsed = app.get_subcommands();
  return parsed.empty() ? app : innermost(*parsed.back());
}

}  // namespace

void check_command_words(const CLI::App& app, std::span<char* const> arguments) {
  const auto names = names_of_commands(app);
  if (names.empty()) return;
  if (arguments.empty()) {
    fail(ExitCode::kUsage, "{}a command is needed: {}; see {} --help", prefix_of(app),
         fmt::join(names, ", "), path_of(app));
  }
  const std::string word = arguments.front();
  if (word.starts_with('-')) return;  // --help, --version, or an error of CLI11's
  if (std::find(names.begin(), names.end(), word) == names.end()) refuse(app, word);
  check_command_words(*app.get_subcommand(word), arguments.subspan(1));
}

std::string planned_commands() { return fmt::format("{}", fmt::join(kPlanned, ", ")); }

std::string explain(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App& command = innermost(app);
  const auto rest = command.remaining();
  const auto unknown = std::find_if(rest.begin(), rest.end(),
                                    [](const auto& word) { return word.starts_with("-"); });
  std::string problem = error.what();
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr && !rest.empty()) {
    if (unknown != rest.end()) {
      const auto name = unknown->substr(0, unknown->find('='));
      problem =
          fmt::format("unknown option {}; {}", name, suggestion(name, names_of_options(command)));
      return fmt::format("{}{}see {} --help", prefix_of(command), problem, path_of(command));
    }
    problem = fmt::format("unexpected argument '{}'", rest.front());
  }
  return fmt::format("{}{}; see {} --help", prefix_of(command), problem, path_of(command));
}

}  // namespace performer::cli
