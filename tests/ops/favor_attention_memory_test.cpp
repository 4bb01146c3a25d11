#include <gtest/gtest.h>
#include <malloc.h>

#include <fstream>
#include <string>

#include "tests/support/oracle.h"

namespace performer::testing {
namespace {

/// VmRSS or VmHWM of this process in bytes.
std::int64_t process_memory(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind(field + ":", 0) == 0) return std::stoll(line.substr(field.size() + 1)) * 1024;
  }
  return -1;
}

/// Lets VmHWM start again from what is in use; where that is not allowed, a process of its own is
/// what makes the figure right.
void reset_peak() { std::ofstream("/proc/self/clear_refs") << 5; }

/// Peak over baseline of everything from creating q, k, v to holding their gradients.
std::int64_t peak_of(std::int64_t length, const Tensor& W, const FavorOptions& options) {
  ::malloc_trim(0);  // what a call before left free is no baseline
  reset_peak();
  const std::int64_t baseline = process_memory("VmRSS");
  const auto tokens = [&] { return at::empty({1, 1, length, W.size(1)}).normal_(); };
  at::manual_seed(0);
  const Tensor dout = tokens();
  Tensor q = tokens().requires_grad_(), k = tokens().requires_grad_(),
         v = tokens().requires_grad_();
  const Tensor out = favor_attention(q, k, v, W, options);
  const auto grads = torch::autograd::grad({out}, {q, k, v}, {dout});
  for (const Tensor& grad : grads) EXPECT_EQ(grad.size(2), length);
  return process_memory("VmHWM") - baseline;
}

TEST(FavorAttentionMemory, OfAMillionTokensIsThatOfInputsAndGradients) {
  ASSERT_GE(process_memory("VmHWM"), 0) << "needs /proc/self/status";
  constexpr std::int64_t kLength = 1 << 20;
  FavorOptions options;
  options.causality = Causality::kCausal;
  const Tensor W = at::randn({64, 64});
  peak_of(1024, W, options);  // threads, libraries and their buffers belong to the baseline
  const double tensors = 8.0 * kLength * 64 * sizeof(float);  // q, k, v, out and their gradients
  const double mebibyte = 1 << 20;
  const auto peak = static_cast<double>(peak_of(kLength, W, options));
  std::cout << "peak over baseline " << peak / mebibyte << " MiB, the eight tensors "
            << tensors / mebibyte << " MiB\n";
  EXPECT_LE(peak, tensors * 1.1 + 64 * mebibyte);
}

// Of L x M' there would be 256 MiB, of L x L 16 GiB.
TEST(FavorAttentionMemory, OfANearFieldIsThatOfSomeTensorsOfTokens) {
  constexpr std::int64_t kLength = 1 << 16, kWidth = 16;
  const double tokens = 1.0 * kLength * kWidth * sizeof(float), mebibyte = 1 << 20;
  const Tensor W = at::randn({1024, kWidth});
  for (const Causality causality : {Causality::kCausal, Causality::kBidirectional}) {
    FavorOptions options;
    options.causality = causality, options.near = 64;
    peak_of(1024, W, options);
    const auto peak = static_cast<double>(peak_of(kLength, W, options));
    std::cout << "near field: peak over baseline " << peak / mebibyte
              << " MiB, one tensor of tokens " << tokens / mebibyte << " MiB\n";
    EXPECT_LE(peak, 24 * tokens + 64 * mebibyte);
  }
}

}  // namespace
}  // namespace performer::testing
