#pragma once

#include <CLI/App.hpp>

namespace performer::cli {

/// The commands under `performer data`, each declared on `data`.
void add_data_build(CLI::App& data);
void add_data_stats(CLI::App& data);
void add_data_split(CLI::App& data);
void add_data_tokenize(CLI::App& data);
void add_data_tokenizer(CLI::App& data);

}  // namespace performer::cli
