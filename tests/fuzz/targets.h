#pragma once

#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>

#include "performer/core/error.h"

/// What reads files of others, one function a format. Each takes any bytes and returns how many of
/// the format's readers took them; the others refused them with an Error that names the file. Every
/// other exception is a finding.
namespace performer::fuzz {

using Bytes = std::span<const std::byte>;

int fasta(Bytes bytes);
int hf(Bytes bytes);
int json(Bytes bytes);
int pds(Bytes bytes);
int png(Bytes bytes);
int pretrained(Bytes bytes);
int safetensors(Bytes bytes);
int toml(Bytes bytes);
int tsv(Bytes bytes);

/// A promise about what was read: where it does not hold, a damaged file was accepted.
inline void require(bool holds, const char* promise) {
  if (!holds) throw std::logic_error(promise);
}

/// Runs `read`; 0 where it refused its input as a bad file named `name`, else 1.
template <class Read>
int accepts(const std::string& name, Read&& read) {
  try {
    read();
    return 1;
  } catch (const Error& error) {
    const auto code = error.code();
    require(code == ExitCode::kUsage || code == ExitCode::kBadInput || code == ExitCode::kCorrupt,
            "a refusal has the exit code of a bad file");
    const std::string text = error.what();
    require(text.find(name) != std::string::npos, "a refusal names the file");
    require(text.find('\n') == std::string::npos, "a refusal is one line");
    return 0;
  }
}

}  // namespace performer::fuzz
