#pragma once

#include <CLI/App.hpp>
#include <span>
#include <string>

/// What a user typed, before and after CLI11 has read it: words in place of its parser's terms.
namespace performer::cli {

/// Throws Error (kUsage), naming the word and the nearest command, unless the leading words of
/// `arguments` (without the program's name) are commands of `app`, of that command, and so on.
void check_command_words(const CLI::App& app, std::span<char* const> arguments);

/// Commands that are promised and not there yet, for help texts.
std::string planned_commands();

/// One line: the command, what is wrong with its arguments, what to do.
std::string explain(const CLI::App& app, const CLI::ParseError& error);

}  // namespace performer::cli
