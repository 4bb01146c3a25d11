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

constexpr std::array<std::string_view, 1> kPlanned = {"reproduce"};

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

// "--out" of "--out=x".
std::string name_of(const std::string& word) { return word.substr(0, word.find('=')); }

[[noreturn]] void refuse_option(const CLI::App& app, const std::string& word) {
  const auto name = name_of(word);
  const auto near = suggestion(name, names_of_options(app));
  fail(ExitCode::kUsage, "{}unknown option {}; {}", prefix_of(app), name,
       near.empty() ? fmt::format("options of a command come after its name, see {} COMMAND --help",
                                  path_of(app))
                    : fmt::format("{}see {} --help", near, path_of(app)));
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
  if (word.starts_with('-')) {
    if (app.get_option_no_throw(name_of(word)) == nullptr) refuse_option(app, word);
    return;  // --help, --version
  }
  if (std::find(names.begin(), names.end(), word) == names.end()) refuse(app, word);
  check_command_words(*app.get_subcommand(word), arguments.subspan(1));
}

std::string planned_commands() { return fmt::format("{}", fmt::join(kPlanned, ", ")); }

std::string explain(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App& command = innermost(app);
  auto rest = command.remaining();
  std::erase(rest, "--");  // what ends the options
  const auto unknown = std::find_if(rest.begin(), rest.end(),
                                    [](const auto& word) { return word.starts_with("-"); });
  if (unknown != rest.end()) {  // it may be why something else is missing
    const auto name = name_of(*unknown);
    return fmt::format("{}unknown option {}; {}see {} --help", prefix_of(command), name,
                       suggestion(name, names_of_options(command)), path_of(command));
  }
  const bool extra = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr && !rest.empty();
  return fmt::format("{}{}; see {} --help", prefix_of(command),
                     extra ? fmt::format("unexpected argument '{}'", rest.front()) : error.what(),
                     path_of(command));
}

}  // namespace performer::cli
