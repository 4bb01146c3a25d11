#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "performer/data/hf/vocabulary.h"

namespace performer::data::hf {

/// What makes tokens of one word. Safe from many threads.
class Model {
 public:
  Model() = default;
  virtual ~Model() = default;
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  virtual const Vocabulary& vocabulary() const = 0;
  /// Adds the tokens of `word`, which is UTF-8 and not empty.
  virtual void encode(std::string_view word, std::vector<std::int64_t>& ids) const = 0;
};

}  // namespace performer::data::hf
