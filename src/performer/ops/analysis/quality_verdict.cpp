#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <sstream>
#include <vector>

#include "performer/ops/analysis/quality.h"
#include "performer/ops/checks.h"

namespace performer {
namespace {

constexpr const char* kVerdict = "quality_verdict: ";
constexpr double kRounding = 1e-6;       // equal errors are not worse
constexpr double kMostFeatures = 16384;  // more are no advice

std::vector<double> to_vector(const Tensor& t) {
  const Tensor values = t.to(at::kCPU, at::kDouble).contiguous();
  return {values.const_data_ptr<double>(), values.const_data_ptr<double>() + values.numel()};
}

// The fields are plain tensors: whoever builds or cuts one by hand must keep them of one length.
void check_fields(const ApproximationQuality& quality) {
  const auto check = [](const Tensor& t, const char* name) {
    TORCH_CHECK(t.defined() && t.dim() == 1 && t.is_floating_point(), kVerdict, name,
                " must be a floating point tensor [heads], got ",
                t.defined() ? c10::toString(t.scalar_type()) : "None", " ",
                t.defined() ? t.sizes() : at::IntArrayRef());
    TORCH_CHECK(has_values(t), kVerdict, name, " must hold values, got a tensor on ", t.device());
  };
  check(quality.error, "error");
  check(quality.uniform_error, "uniform_error");
  check(quality.suggested_features, "suggested_features");
  const auto heads = quality.error.size(0);
  TORCH_CHECK(quality.uniform_error.size(0) == heads && quality.suggested_features.size(0) == heads,
              kVerdict,
              "error, uniform_error and suggested_features must have one value for each head, "
              "got ",
              heads, ", ", quality.uniform_error.size(0), " and ",
              quality.suggested_features.size(0));
}

struct Heads {
  std::vector<double> error, uniform, suggested;

  double gain(std::size_t head) const { return error[head] - uniform[head]; }
  bool is_worse(std::size_t head) const { return !(gain(head) <= kRounding); }
  std::string errors(std::size_t head) const {
    std::ostringstream text;
    text << "error " << std::setprecision(3) << error[head] << ", averaging " << uniform[head];
    return text.str();
  }
};

// Advice that is met already is none: fewer features than there are become 0, which the meter never
// suggests. Callers that hand on suggested_features alone say it so.
std::vector<double> still_suggested(const ApproximationQuality& quality) {
  auto suggested = to_vector(quality.suggested_features);
  if (!quality.predicted_error.defined()) return suggested;
  const auto predicted = to_vector(quality.predicted_error);
  for (std::size_t h = 0; h < std::min(predicted.size(), suggested.size()); ++h) {
    if (predicted[h] <= kTargetVariance) suggested[h] = 0;
  }
  return suggested;
}

// What a user can do today, the cheapest first. Projections are orthogonal unless asked otherwise.
std::string advice(double suggested) {
  constexpr const char* kFeatures =
      " or, for the positive map, optimal ones (performer.fit_oprf and performer.oprf)";
  std::ostringstream text;
  if (suggested < 1) {
    text << "within the noise of it: exact attention is nearly plain averaging there, and the "
            "features are as many as it needs";
  } else if (suggested <= kMostFeatures) {
    text << "use more features (about " << suggested << ")" << kFeatures;
  } else if (std::isnan(suggested)) {
    text << "use more features" << kFeatures;
  } else {
    text << "the norms are too large for any practical number of features; pass a smaller scale, "
            "normalise q and k, or use exact attention in these heads";
  }
  return text.str();
}

}  // namespace

std::string verdict(const ApproximationQuality& quality) {
  check_fields(quality);
  const Heads heads{to_vector(quality.error), to_vector(quality.uniform_error),
                    still_suggested(quality)};
  const auto any = [&](const auto& test) {
    bool found = false;
    for (std::size_t h = 0; h < heads.error.size(); ++h)
      found |= test(heads.error[h], heads.uniform[h]);
    return found;
  };
  if (any([](double, double uniform) { return std::isnan(uniform); })) {
    return "no verdict: q, k or v are not finite";
  }
  if (!any([](double error, double uniform) { return error != 0 || uniform != 0; })) {
    return "no verdict: nothing to compare (no keys, or values of 0)";
  }
  std::vector<std::size_t> worse;
  std::size_t worst = 0;
  for (std::size_t head = 0; head < heads.error.size(); ++head) {
    if (heads.is_worse(head)) worse.push_back(head);
    if (!(heads.gain(head) <= heads.gain(worst))) worst = head;
  }
  std::ostringstream text;
  if (worse.empty()) {
    text << (heads.error.size() == 1 ? "head 0 is" : "all heads are")
         << " better than plain averaging (closest: head " << worst << ", " << heads.errors(worst)
         << ")";
  } else if (worse.size() == 1) {
    text << "head " << worst << ": worse than plain averaging (" << heads.errors(worst)
         << "): " << advice(heads.suggested[worst]);
  } else {
    text << worse.size() << " of " << heads.error.size()
         << " heads: worse than plain averaging (heads";
    for (const std::size_t head : worse) text << (head == worse[0] ? " " : ", ") << head;
    text << "; worst: head " << worst << ", " << heads.errors(worst)
         << "): " << advice(heads.suggested[worst]);
  }
  return text.str();
}

}  // namespace performer
