#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "performer/cli/model_options.h"
#include "performer/core/file.h"
#include "performer/infer/generate.h"

/// `performer generate`, by what comes out: sequences as text, or images.
namespace performer::cli {

struct GenerateOptions {
  ModelOptions model;
  std::string prompt, output;
  std::int64_t n = 5;
  std::int64_t length = 0;  // 0: not given
  infer::SamplingOptions sampling;
  bool json = false, no_stop = false, overwrite = false;
};

struct Timing {
  double seconds = 0;
  std::vector<double> at_each_1000;  // seconds at each thousandth token of a sequence
};

/// What was made, with all that a report needs.
struct Sampled {
  const infer::LoadedModel& loaded;
  const std::vector<std::int64_t>& prompt;
  const infer::Generated& generated;
  const Timing& timing;
};

/// The part of --json that both have.
nlohmann::ordered_json report_of(const Sampled& sampled);

void print_sequences(const GenerateOptions& o, const Sampled& sampled);

/// Where the images of a run go. Made before sampling, so that a folder that cannot be used ends
/// the command early: kUsage where a file is there and --overwrite was not given.
class ImageFolder {
 public:
  ImageFolder(const GenerateOptions& o, const infer::LoadedModel& loaded);

  /// Values of an image: the length of a sequence.
  std::int64_t values() const { return values_; }

  /// Writes sample-001.png ... and, for two samples or more, sheet.png; says where they are.
  void write(const GenerateOptions& o, const Sampled& sampled);

 private:
  std::string folder_;
  std::int64_t values_ = 0;
  std::vector<std::string> files_;
  std::string sheet_;  // empty: one sample needs none
  // Opened with the folder: a disk or a name that takes no file is known before hours of sampling.
  std::unique_ptr<AtomicFile> first_file_, sheet_file_;
};

}  // namespace performer::cli
