#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "performer/fit/coordinates.h"
#include "performer/fit/samples.h"
#include "performer/fit/unfinished.h"
#include "performer/models/fitted_features.h"
#include "performer/models/transformer.h"

/// Fitted features for a model that was trained with exact attention, without labels: the model
/// itself says, on any text, what its attention should do.
namespace performer::fit {

struct Progress {
  std::string stage;
  std::int64_t step = 0, steps = 0;
  double loss = 0, first_loss = 0;  // of this step, and of the stage's first
};

struct FitOptions {
  std::int64_t rows = 16;              // of a batch
  std::int64_t calibration = 8;        // batches that moments are taken from
  std::int64_t attention_steps = 600;  // KL of exact attention and that of the features
  std::int64_t model_steps = 1000;     // hidden states and output of the converted model
  std::int64_t weight_steps = 0;       // the same with all weights
  double attention_rate = 1e-2, model_rate = 3e-3, weight_rate = 1e-4;
  std::function<void(const Progress&)> progress;
  Unfinished* unfinished = nullptr;  // where the fit is kept while it runs; null: nowhere
  double save_seconds = 60;          // between two saves
  std::function<bool()> stop;        // asked after each step: save and fail with kPreempted
};

/// Two models of equal weights: exact, and converted, whose favor layers have fitted features
/// (attention.projection = "fitted"). Layers of other kinds stay as they are.
class Fit {
 public:
  Fit(models::Transformer exact, models::Transformer converted, const Samples& samples,
      const FitOptions& options);

  /// Exact identities and OPRF from moments (calibrate.h): seconds.
  void calibrate();
  /// Each layer by itself, on the exact model's queries and keys.
  void fit_attention();
  /// The converted model as a whole, its features alone; then with weight_steps all its weights.
  void fit_model();
  /// Rows of features become numbers that both 16-bit types hold exactly.
  void round();

 private:
  struct Layer {
    std::int64_t number;
    models::FittedFeatures features;
    std::optional<Coordinates> coordinates;
  };
  using Loss = std::function<at::Tensor(const models::ModelInput& input)>;
  struct Stage {
    std::string name;
    std::int64_t steps;
    double rate;
    bool model, weights;  // the model as a whole, with its weights
  };
  void descend(const Stage& stage, const Loss& loss);
  run::NamedTensors fitted_by(const Stage& stage);
  bool finished_before(const Stage& stage) const;
  void keep(const Unfinished::Place& place, const Stage& stage, const run::NamedTensors& state);
  at::Tensor attention_loss(const models::ModelInput& input);
  at::Tensor model_loss(const models::ModelInput& input);
  at::Device device() { return exact_->parameters().front().device(); }

  models::Transformer exact_, converted_;
  const Samples& samples_;
  FitOptions options_;
  std::vector<Layer> layers_;
  std::int64_t batches_ = 0;  // taken so far: no stage sees another's
  std::chrono::steady_clock::time_point saved_ = std::chrono::steady_clock::now();
};

}  // namespace performer::fit
