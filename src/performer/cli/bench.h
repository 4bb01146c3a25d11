#pragma once

#include <CLI/App.hpp>

namespace performer::cli {

/// The commands under `performer bench`, each declared on `bench`.
void add_bench_attention(CLI::App& bench);
void add_bench_model(CLI::App& bench);

}  // namespace performer::cli
