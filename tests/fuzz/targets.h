#pragma once

#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>

#include "performer/core/error.h"

/// What reads files of others, one function a format. Each takes any bytes and returns: they are
/// read, or refused with an Error that names the file. Every other exception is a finding.
namespace performer::fuzz {

using Bytes = std::span<const std::byte>;

void fasta(Bytes bytes);
void json(Bytes bytes);
void pds(Bytes bytes);
void png(Bytes bytes);
void safetensors(Bytes bytes);
void toml(Bytes bytes);
void tsv(Bytes bytes);

/// A promise about what was read: where it does not hold, a damaged file was accepted.
inline void require(bool holds, const char* promise) {
  if (!holds) throw std::logic_error(promise);
}

/// Runs `read`; false where it refused its input as a bad file named `name`.
template <class Read>
bool accepts(const std::string& name, Read&& read) {
  try {
    read();
    return true;
  } catch (const Error& error) {
    const auto code = error.code();
    require(code == ExitCode::kUsage || code == ExitCode::kBadInput || code == ExitCode::kCorrupt,
            "a refusal has the exit code of a bad file");
    const std::string text = error.what();
    require(text.find(name) != std::string::npos, "a refusal names the file");
    require(text.find('\n') == std::string::npos, "a refusal is one line");
    return false;
  }
}

}  // namespace performer::fuzz
