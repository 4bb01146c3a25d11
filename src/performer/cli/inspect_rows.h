#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "performer/infer/load_model.h"

namespace performer::cli {

struct RowOptions {
  std::string path;  // of sequences; empty: the run's validation data
  std::int64_t count = 8, length = 512;
};

/// Rows to measure a model on.
struct SampleRows {
  std::vector<at::Tensor> rows;  // int64 [L] on the device, without padding
  std::string about;             // which ones, in words; without rows, why there are none
};

/// Of the file that `options` name: an Error where it cannot be read. Of the run's validation data,
/// as the model reads them there: none, and the reason, where it has none or they are gone.
SampleRows open_rows(const RowOptions& options, const infer::LoadedModel& loaded,
                     at::Device device);

}  // namespace performer::cli
