#include "performer/ops/backends/choose.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "performer/kernels/cpu/kernels.h"
#include "performer/ops/favor/attention.h"
#include "performer/ops/favor/step.h"
#include "performer/ops/last_kernel.h"
#include "tests/support/cpu_kernels.h"

namespace performer::testing {
namespace {

using namespace backends;

constexpr Path kPaths[] = {Path::kCudaDecode, Path::kCudaHopper,    Path::kCudaPortable,
                           Path::kCpuAmx,     Path::kCpuAvx512Bf16, Path::kCpuAvx512,
                           Path::kCpuAvx2,    Path::kCpuPortable};
constexpr Pass kPasses[] = {kForward, kBackward, kStep};
constexpr Switch kSwitches[] = {kAuto, kPortable, kAvx2, kAvx512, kAvx512Bf16, kAmx, kHopper, kOff};

using Serving = std::set<Path>;

Path chosen(Pass pass, at::DeviceType device, Switch value, const Serving& serving) {
  return choose(pass, device, value, [&](Path path) { return serving.contains(path); });
}

/// What is expected in words: the first of `order` that serves.
Path first_of(const std::vector<Path>& order, const Serving& serving) {
  for (const Path path : order) {
    if (serving.contains(path)) return path;
  }
  return Path::kComposed;
}

Path expected_on_cuda(Pass pass, Switch value, const Serving& serving) {
  switch (value) {
    case kAuto:
      return pass == kStep
                 ? first_of({Path::kCudaDecode, Path::kCudaHopper, Path::kCudaPortable}, serving)
                 : first_of({Path::kCudaHopper, Path::kCudaPortable}, serving);
    case kHopper:
      return first_of({Path::kCudaHopper}, serving);
    case kPortable:
      return first_of({Path::kCudaPortable}, serving);
    default:
      return Path::kComposed;
  }
}

Path expected_on_cpu(Pass pass, Switch value, const Serving& serving) {
  const bool back = pass == kBackward;
  switch (value) {
    case kAuto:
      return back ? first_of({Path::kCpuAvx512, Path::kCpuAvx2, Path::kCpuPortable}, serving)
                  : first_of({Path::kCpuAmx, Path::kCpuAvx512Bf16, Path::kCpuAvx512, Path::kCpuAvx2,
                              Path::kCpuPortable},
                             serving);
    case kAmx:
      return back ? first_of({Path::kCpuAvx512}, serving)
                  : first_of({Path::kCpuAmx, Path::kCpuAvx512}, serving);
    case kAvx512Bf16:
      return back ? first_of({Path::kCpuAvx512}, serving)
                  : first_of({Path::kCpuAvx512Bf16, Path::kCpuAvx512}, serving);
    case kAvx512:
      return first_of({Path::kCpuAvx512}, serving);
    case kAvx2:
      return first_of({Path::kCpuAvx2}, serving);
    case kPortable:
      return first_of({Path::kCpuPortable}, serving);
    default:
      return Path::kComposed;
  }
}

TEST(Choose, TakesTheBestPathThatServesUnderEverySwitch) {
  for (unsigned bits = 0; bits < 1U << std::size(kPaths); ++bits) {
    Serving serving;
    for (std::size_t i = 0; i < std::size(kPaths); ++i) {
      if ((bits >> i & 1U) != 0) serving.insert(kPaths[i]);
    }
    for (const Pass pass : kPasses) {
      for (const Switch value : kSwitches) {
        ASSERT_EQ(chosen(pass, at::kCUDA, value, serving), expected_on_cuda(pass, value, serving))
            << "pass " << int{pass} << ", switch " << int{value} << ", serving " << bits;
        ASSERT_EQ(chosen(pass, at::kCPU, value, serving), expected_on_cpu(pass, value, serving))
            << "pass " << int{pass} << ", switch " << int{value} << ", serving " << bits;
      }
    }
  }
}

TEST(Choose, LeavesOtherDevicesToTheComposedOperator) {
  const Serving all(std::begin(kPaths), std::end(kPaths));
  EXPECT_EQ(chosen(kForward, at::kMPS, kAuto, all), Path::kComposed);
}

TEST(Choose, GoesOnWithTheSumsOfThePathsThatRoundAlike) {
  EXPECT_TRUE(rounds_alike(Path::kCpuAvx512, Path::kCpuAmx));
  EXPECT_TRUE(rounds_alike(Path::kComposed, Path::kComposed));
  EXPECT_FALSE(rounds_alike(Path::kComposed, Path::kCpuAvx512));
  EXPECT_FALSE(rounds_alike(Path::kCudaPortable, Path::kCudaHopper));
}

/// A call, and who serves it where a kernel does at all.
struct Example {
  const char* words;
  at::ScalarType dtype;
  FeatureMap map;
  Renormalize renormalize;
  bool fused;
};
constexpr Example kExamples[] = {
    {"float32", at::kFloat, FeatureMap::kPositive, Renormalize::kYes, true},
    {"bfloat16", at::kBFloat16, FeatureMap::kPositive, Renormalize::kYes, true},
    {"a generalised map", at::kHalf, FeatureMap::kGelu, Renormalize::kYes, true},
    {"float64", at::kDouble, FeatureMap::kPositive, Renormalize::kYes, false},
    {"trigonometric", at::kFloat, FeatureMap::kTrigonometric, Renormalize::kYes, false},
    {"the numerator", at::kFloat, FeatureMap::kPositive, Renormalize::kNo, false},
};

/// The name of the path that the last call took: "cpu/avx512".
std::string last_path() {
  const std::string kernel = last_kernel();
  return kernel.substr(0, kernel.find('/', kernel.find('/') + 1));
}

/// Forward, backward and step of the example under `value`; the path of each.
std::vector<std::string> paths_taken(const Example& e, const char* value) {
  const CpuKernels setting(value);
  const auto options = at::TensorOptions(e.dtype);
  const auto row = [&](std::int64_t length) { return at::ones({1, 2, length, 8}, options); };
  const Tensor W = at::ones({16, 8}, e.dtype == at::kDouble ? at::kDouble : at::kFloat);
  FavorOptions o;
  o.feature_map = e.map, o.renormalize = e.renormalize, o.causality = Causality::kCausal;
  std::vector<std::string> taken;
  const Tensor q = row(5).requires_grad_();
  const Tensor out = favor_attention(q, row(5), row(5), W, o);
  taken.push_back(last_path());
  out.sum().backward();
  taken.push_back(last_path());
  const at::NoGradGuard no_grad;
  o.initial_state = favor_attention_with_state(row(5), row(5), row(5), W, o).second;
  favor_step_in_place(row(1), row(1), row(1), W, o);
  taken.push_back(last_path());
  return taken;
}

TEST(Choose, IsWhatCallsOnTheCpuTake) {
  struct Named {
    const char* value;
    kernels::Isa isa;
    Path forward, backward;
  };
  const Named named[] = {
      {"portable", kernels::Isa::kPortable, Path::kCpuPortable, Path::kCpuPortable},
      {"avx2", kernels::Isa::kAvx2, Path::kCpuAvx2, Path::kCpuAvx2},
      {"avx512", kernels::Isa::kAvx512, Path::kCpuAvx512, Path::kCpuAvx512}};
  for (const Example& e : kExamples) {
    SCOPED_TRACE(e.words);
    const std::vector<std::string> composed(3, "composed");
    EXPECT_EQ(paths_taken(e, "off"), composed);
    for (const Named& n : named) {
      SCOPED_TRACE(n.value);
      if (!e.fused) {
        EXPECT_EQ(paths_taken(e, n.value), composed);
      } else if (kernels::processor_has(n.isa)) {
        const std::vector<std::string> expected{name(n.forward), name(n.backward), name(n.forward)};
        EXPECT_EQ(paths_taken(e, n.value), expected);
      } else {
        EXPECT_THROW(paths_taken(e, n.value), std::invalid_argument);
      }
    }
  }
}

TEST(Choose, ReadsNoSwitchWhereTheComposedOperatorAloneServes) {
  for (const Example& e : kExamples) {
    SCOPED_TRACE(e.words);
    if (e.fused) {
      EXPECT_THROW(paths_taken(e, "sse9"), std::invalid_argument);
    } else {
      EXPECT_EQ(paths_taken(e, "sse9"), std::vector<std::string>(3, "composed"));
    }
  }
}

}  // namespace
}  // namespace performer::testing
