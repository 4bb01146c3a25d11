#pragma once

#include <zlib.h>

#include <string>

#include "tests/support/temporary_folder.h"

namespace performer::testing {

/// Writes a packed file and returns its path.
inline std::string write_gzip(const TemporaryFolder& folder, const std::string& name,
                              const std::string& content) {
  const auto path = folder.file(name);
  const gzFile out = gzopen(path.c_str(), "wb");
  gzwrite(out, content.data(), static_cast<unsigned>(content.size()));
  gzclose(out);
  return path;
}

}  // namespace performer::testing
