#include "performer/infer/attention_quality.h"

#include <ATen/ATen.h>

#include <cmath>
#include <optional>

#include "performer/models/favor_core.h"
#include "performer/models/random_projection.h"
#include "performer/ops/analysis/quality.h"
#include "performer/ops/feature_map.h"

namespace performer::infer {
namespace {

// A mean of what was measured.
class Mean {
 public:
  void add(double value) {
    if (std::isnan(value)) return;
    sum_ += value, ++count_;
  }
  double value() const { return count_ == 0 ? kNotMeasured : sum_ / static_cast<double>(count_); }
  double root() const { return std::sqrt(value()); }

 private:
  double sum_ = 0;
  std::int64_t count_ = 0;
};

struct FeatureMeans {
  std::int64_t features = 0;
  Mean squared_error, predicted, effective;

  void add(const ApproximationQuality& q, std::int64_t head) {
    const double error = q.error[head].item<double>();
    squared_error.add(error * error);
    predicted.add(q.predicted_error[head].item<double>());
    effective.add(q.effective_samples[head].item<double>());
  }
  FeatureQuality result() const {
    return {features, squared_error.root(), predicted.value(), effective.value()};
  }
};

struct HeadMeans {
  Mean query_norm, key_norm, squared_sum, squared_uniform, suggested;
  FeatureMeans own;
  std::vector<FeatureMeans> by_features;

  HeadQuality result(std::int64_t layer, std::int64_t head) const {
    HeadQuality r{layer,
                  head,
                  query_norm.value(),
                  key_norm.value(),
                  squared_sum.value(),
                  squared_uniform.root(),
                  suggested.value(),
                  own.result(),
                  {}};
    for (const auto& means : by_features) r.by_features.push_back(means.result());
    return r;
  }
};

// Features that estimate softmax attention, and what favor_attention is given with them.
struct Features {
  at::Tensor W;
  FavorOptions options;
};

bool estimates_softmax(FeatureMap map) {
  return map == FeatureMap::kPositive || map == FeatureMap::kLoglinear ||
         map == FeatureMap::kHyperbolic || map == FeatureMap::kTrigonometric;
}

class Meter {
 public:
  Meter(models::Transformer& model, const QualitySample& sample)
      : model_(model), sample_(sample), layers_(static_cast<std::size_t>(model->config().layers)) {}

  void add(std::int64_t layer, const models::Heads& heads) {
    // Keys of lsh are its queries: no softmax attention that features could stand for.
    if (!heads.q.defined() || model_->config().kind_of(layer) == "lsh") return;
    auto& own = layers_[static_cast<std::size_t>(layer)];
    own.resize(static_cast<std::size_t>(heads.q.size(1)));
    add_norms(heads, own);
    if (const auto features = own_features(layer, heads)) {
      const auto q = measure(heads, *features);
      const auto count = features->W.defined() ? features->W.size(-2) : 0;
      each(own, [&](HeadMeans& head, std::int64_t h) {
        head.own.features = count;
        head.own.add(q, h);
      });
    }
    for (std::size_t i = 0; i < sample_.features.size(); ++i) {
      const auto q = measure(heads, plain_features(layer, heads, sample_.features[i]));
      each(own, [&](HeadMeans& head, std::int64_t h) {
        head.by_features.resize(sample_.features.size());
        head.by_features[i].features = sample_.features[i];
        head.by_features[i].add(q, h);
        if (i > 0) return;  // these do not depend on the features
        const double uniform = q.uniform_error[h].item<double>();
        head.squared_sum.add(q.squared_sum[h].item<double>());
        head.squared_uniform.add(uniform * uniform);
        head.suggested.add(q.suggested_features[h].item<double>());
      });
    }
  }

  std::vector<HeadQuality> results() const {
    std::vector<HeadQuality> all;
    for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
      for (std::size_t head = 0; head < layers_[layer].size(); ++head) {
        all.push_back(layers_[layer][head].result(static_cast<std::int64_t>(layer),
                                                  static_cast<std::int64_t>(head)));
      }
    }
    return all;
  }

 private:
  using HeadList = std::vector<HeadMeans>;

  template <class Take>
  static void each(HeadList& heads, Take take) {
    for (std::size_t h = 0; h < heads.size(); ++h) take(heads[h], static_cast<std::int64_t>(h));
  }

  double scale() const {
    const auto& config = model_->config();
    const double given = config.attention.scale;
    return given > 0 ? given : 1 / std::sqrt(static_cast<double>(config.head_dim()));
  }

  void add_norms(const models::Heads& heads, HeadList& own) const {
    const auto norms = [&](const at::Tensor& t) {
      return (t.to(at::kDouble).square().sum(-1).mean({0, 2}) * scale()).cpu();
    };
    const at::Tensor x = norms(heads.q), y = norms(heads.k);
    each(own, [&](HeadMeans& head, std::int64_t h) {
      head.query_norm.add(x[h].item<double>());
      head.key_norm.add(y[h * y.size(0) / x.size(0)].item<double>());
    });
  }

  std::optional<Features> own_features(std::int64_t layer, const models::Heads& heads) {
    auto* core = dynamic_cast<models::FavorCore*>(&model_->block(layer).core());
    if (core == nullptr) return std::nullopt;
    Features features{core->projection_on(heads.q.device()), core->options_for(heads)};
    if (!estimates_softmax(features.options.feature_map)) return std::nullopt;
    features.options.scale = scale();
    return features;
  }

  Features plain_features(std::int64_t layer, const models::Heads& heads,
                          std::int64_t count) const {
    const auto& config = model_->config();
    models::AttentionConfig attention;
    attention.features = count;
    attention.seed = config.attention.seed;
    Features features;
    features.W = models::draw_for(attention, {heads.k.size(1), heads.q.size(3), layer}, 0)
                     .to(heads.q.device());
    features.options.scale = scale();
    features.options.causality = config.causal ? Causality::kCausal : Causality::kBidirectional;
    features.options.near = sample_.near < 0 ? config.attention.near : sample_.near;
    return features;
  }

  ApproximationQuality measure(const models::Heads& heads, const Features& features) const {
    QualityOptions options;
    options.favor = features.options;
    options.samples = sample_.queries;
    auto q = approximation_quality(heads.q, heads.k, heads.v, features.W, options);
    for (auto* t : {&q.squared_sum, &q.predicted_error, &q.effective_samples, &q.error,
                    &q.uniform_error, &q.suggested_features}) {
      *t = t->cpu();
    }
    return q;
  }

  models::Transformer& model_;
  const QualitySample& sample_;
  std::vector<HeadList> layers_;
};

}  // namespace

bool HeadQuality::beats_average() const {
  const bool has_own = !std::isnan(own.error) || by_features.empty();
  return (has_own ? own.error : by_features.back().error) < uniform_error;
}

std::vector<HeadQuality> attention_quality(models::Transformer& model,
                                           const QualitySample& sample) {
  const at::NoGradGuard no_grad;
  Meter meter(model, sample);
  for (const auto& row : sample.rows) {
    model->all_hidden({row.unsqueeze(0), {}}, [&](std::int64_t layer, const models::Heads& heads) {
      meter.add(layer, heads);
    });
  }
  return meter.results();
}

std::vector<double> error_growth(models::Transformer& exact, models::Transformer& estimate,
                                 const std::vector<at::Tensor>& rows) {
  const at::NoGradGuard no_grad;
  std::vector<double> errors, norms;
  for (const auto& row : rows) {
    const auto a = exact->all_hidden({row.unsqueeze(0), {}});
    const auto b = estimate->all_hidden({row.unsqueeze(0), {}});
    errors.resize(a.size() - 1), norms.resize(a.size() - 1);
    for (std::size_t i = 1; i < a.size(); ++i) {
      const at::Tensor h = a[i].to(at::kDouble);
      errors[i - 1] += (b[i].to(at::kDouble) - h).square().sum().item<double>();
      norms[i - 1] += h.square().sum().item<double>();
    }
  }
  for (std::size_t i = 0; i < errors.size(); ++i) errors[i] = std::sqrt(errors[i] / norms[i]);
  return errors;
}

}  // namespace performer::infer
