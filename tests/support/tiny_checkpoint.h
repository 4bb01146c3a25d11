#pragma once

#include <ATen/Functions.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "performer/core/error.h"
#include "performer/run/checkpoint_store.h"

namespace performer::testing {

/// A checkpoint of a few bytes that differ from step to step.
inline run::CheckpointContent tiny_content(std::int64_t step) {
  run::CheckpointContent content;
  content.model = {{"weight", at::full({2, 3}, static_cast<double>(step), at::kFloat)},
                   {"bias", at::arange(3, at::kFloat)}};
  content.trainer = {{"moment", at::full({2}, -static_cast<double>(step), at::kDouble)}};
  content.config_json = R"({"dim": 3})";
  content.trainer_json = fmt::format(R"({{"step": {}}})", step);
  content.tokenizer = {{"tokenizer.json", R"({"kind": "bytes"})"}};
  return content;
}

/// newest_good() of the run's store and what it refused on the way.
struct Opened {
  std::int64_t step = -1;  // -1: none
  std::vector<std::string> rejected;
};

inline Opened open_newest(const run::CheckpointStore& store) {
  Opened opened;
  const auto checkpoint =
      store.newest_good([&](const Error& error) { opened.rejected.emplace_back(error.what()); });
  if (checkpoint) {
    opened.step = checkpoint->step();
    const auto tensors = run::load_tensors(checkpoint->model_file());
    TORCH_CHECK(tensors.at(0).second.equal(tiny_content(opened.step).model[0].second),
                "checkpoint holds another step's tensors");
  }
  return opened;
}

}  // namespace performer::testing
