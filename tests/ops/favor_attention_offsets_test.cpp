#include <gtest/gtest.h>

#include <atomic>
#include <limits>
#include <thread>

#include "tests/support/oracle.h"

// Offsets that their owner writes to while they are used.
namespace performer::testing {
namespace {

constexpr std::int64_t kRight = 30;

// Calls again and again while another thread writes wrong offsets and right ones in turn. Each call
// must be refused, or be that with the right offsets.
void call_while_offsets_change(at::ScalarType dtype, Causality causality) {
  OpCase c;
  c.dtype = dtype;
  c.causality = causality;
  c.batch = 1;
  Inputs in = make_inputs(c);
  const Tensor offsets = at::tensor({std::int64_t{0}, kRight, c.length}, at::kLong);
  in.options.cu_seqlens_q = in.options.cu_seqlens_k = offsets;
  const Tensor right = favor_attention(in.q, in.k, in.v, in.W, in.options);
  std::atomic_ref<std::int64_t> middle(offsets.data_ptr<std::int64_t>()[1]);
  std::atomic<bool> done = false;
  std::thread writer([&] {
    while (!done) {
      for (const std::int64_t wrong : {std::int64_t{1} << 40, std::int64_t{-5000}}) {
        middle = wrong;
        middle = kRight;
      }
    }
  });
  int refused = 0, answered = 0;
  for (int i = 0; i < 300; ++i) {
    try {
      const Tensor out = favor_attention(in.q, in.k, in.v, in.W, in.options);
      EXPECT_LE(rms_error(out, right), error_bound(dtype, c.length) * rms(in.v));
      ++answered;
    } catch (const c10::Error&) {
      ++refused;
    }
  }
  done = true;
  writer.join();
  EXPECT_EQ(refused + answered, 300);
}

TEST(PackedOffsets, MayChangeWhileTheFusedKernelsRun) {
  call_while_offsets_change(at::kFloat, Causality::kBidirectional);
  call_while_offsets_change(at::kFloat, Causality::kCausal);
}

TEST(PackedOffsets, MayChangeWhileTheComposedOperatorRuns) {
  call_while_offsets_change(at::kDouble, Causality::kCausal);
}

}  // namespace
}  // namespace performer::testing
