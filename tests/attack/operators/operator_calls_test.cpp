#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <sstream>
#include <string>

#include "performer/ops/favor/attention.h"
#include "tests/attack/operators/contract.h"
#include "tests/attack/operators/operator_call.h"
#include "tests/attack/operators/watched.h"
#include "tests/support/oracle.h"

/// Random calls of every registered operator. A valid call must be accepted, and favor_attention's
/// right. A changed call must end without a crash, a hang or an internal assertion; where
/// favor_attention accepts one, its arguments must keep the contract (contract.h). What else each
/// single change must do is the systematic operator_arguments_test's.
/// PERFORMER_CALLS: how many (default 1,000). PERFORMER_CALL_SEED: this one alone, as a failure
/// names it.

#if defined(__SANITIZE_ADDRESS__)
// Sizes beyond all memory are refused as without the sanitizer: by an exception of the allocation.
extern "C" const char* __asan_default_options() {  // NOLINT(bugprone-reserved-identifier)
  return "allocator_may_return_null=1:max_allocation_size_mb=2048";
}
#endif

namespace performer::testing {
namespace {

std::uint64_t number_from(const char* variable, std::uint64_t fallback) {
  const char* text = std::getenv(variable);
  return text == nullptr ? fallback : std::strtoull(text, nullptr, 10);
}

OperatorCall draw_call(Draw& draw) {
  static const auto operators = registered_operators();
  // The fused kernels walk memory by hand: every second call is one of theirs.
  static const auto fused = [] {
    std::vector<c10::OperatorHandle> kept;
    for (const auto& op : operators) {
      if (op.schema().name().starts_with("performer::favor_")) kept.push_back(op);
    }
    return kept;
  }();
  return valid_call(draw.of(draw.one_in(2) ? fused : operators), draw);
}

/// Far more than the unit tests allow: problems of any size are here, and rows of one key, which
/// the plain version gives without any error. What is wrong is wrong by much.
void expect_right(const OpCase& c, const Inputs& in, const Tensor& out) {
  if (c.renormalize == Renormalize::kNo) return;  // nothing bounds the sums of 16 bits
  const Tensor rows = sample_rows(in.q.size(2));
  const auto exact = oracle(in, rows);
  const auto unfused = oracle(in, rows, c.dtype).out;
  ASSERT_EQ(out.sizes(), exact.out.sizes());
  EXPECT_LE(conditioned_error(out, exact), 8 * conditioned_error(unfused, exact) +
                                               std::max(1e-11, 16 * epsilon(c.dtype)) * rms(in.v));
}

/// What is wrong with a valid call's results; empty: nothing.
std::string judge_valid(const OperatorCall& call, const std::vector<at::IValue>& results) {
  for (const auto& result : results) {
    if (result.isTensor() && !result.toTensor().defined()) return "an undefined result";
  }
  if (call.name() != "performer::favor_attention") return {};
  Inputs in;
  const auto& a = call.arguments;
  const auto tensor = [&](std::size_t i) { return a[i].isNone() ? Tensor() : a[i].toTensor(); };
  in.q = tensor(0), in.k = tensor(1), in.v = tensor(2), in.W = tensor(3);
  in.options.feature_map = call.problem->map;
  in.options.causality = call.problem->causality;
  in.options.renormalize = call.problem->renormalize;
  in.options.key_mask = tensor(9);
  in.options.cu_seqlens_q = tensor(10), in.options.cu_seqlens_k = tensor(11);
  in.options.projection_k = tensor(14), in.options.bias_q = tensor(15);
  in.options.bias_k = tensor(16), in.options.key_bias = tensor(17);
  in.options.initial_state = {tensor(18), tensor(19), tensor(20), {}};
  const OpCase& c = *call.problem;
  SCOPED_TRACE(::testing::Message() << c.name << " as " << in.q.sizes() << " " << in.k.sizes()
                                    << " " << in.v.sizes() << " W " << in.W.sizes());
  expect_right(c, in, results[0].toTensor());
  return ::testing::Test::HasFailure() ? "differs from the definition" : std::string();
}

/// The arguments in short, for messages.
std::string describe(const OperatorCall& call) {
  std::ostringstream text;
  for (std::size_t i = 0; i < call.arguments.size(); ++i) {
    const auto& value = call.arguments[i];
    text << "\n  " << call.op.schema().arguments()[i].name() << " ";
    if (value.isTensor() && value.toTensor().defined()) {
      text << value.toTensor().scalar_type() << " " << value.toTensor().sym_sizes();
    } else if (!value.isTensor() && !value.isTensorList()) {
      text << value;
    }
  }
  return text.str();
}

/// What is wrong with a changed call that was accepted; empty: nothing.
std::string judge_changed(const OperatorCall& call, const std::vector<at::IValue>& results) {
  if (call.name() != "performer::favor_attention") return {};
  const std::string broken = broken_contract(call, results);
  return broken.empty() ? broken : "accepted, although " + broken;
}

/// One call of this seed, one in four of them valid.
std::string attempt(std::uint64_t seed) {
  Draw draw(seed);
  OperatorCall call = draw_call(draw);
  const bool valid = draw.one_in(4);
  std::string done = call.name();
  for (auto changes = valid ? 0 : draw.between(1, 3); changes > 0; --changes) {
    try {
      done += "; " + mutate(call, draw);
    } catch (const std::exception&) {
      return {};  // torch itself has no such tensor
    }
  }
  if (std::getenv("PERFORMER_CALL_SEED") != nullptr) {
    std::fprintf(stderr, "%s%s\n", done.c_str(), describe(call).c_str());
  }
  try {
    const auto results = call.run();
    const std::string wrong = valid ? judge_valid(call, results) : judge_changed(call, results);
    return wrong.empty() ? wrong : done + ": " + wrong;
  } catch (const std::exception& error) {
    const std::string text = error.what();
    if (valid) return done + ": a valid call is refused: " + text.substr(0, 800);
    // Torch's own fallback asserts where a lazily negated tensor is to be written in place.
    const bool ours = text.find("MathBitsFallback") == std::string::npos;
    if (ours && text.find("INTERNAL ASSERT") != std::string::npos) {
      return done + ": an internal assertion instead of a reason: " + text.substr(0, 800);
    }
    return {};
  }
}

TEST(OperatorCallsTest, NoCallCrashesHangsOrIsWrong) {
  const auto one = number_from("PERFORMER_CALL_SEED", 0);
  const auto first = one > 0 ? one : 1;
  const auto count = one > 0 ? 1 : number_from("PERFORMER_CALLS", 1000);
  for (const auto& [seed, how] : casualties_of(first, count, attempt)) {
    ADD_FAILURE() << how << "\nagain by PERFORMER_CALL_SEED=" << seed << " operator_calls_test";
  }
}

TEST(OperatorCallsTest, SilentAcceptanceWouldBeSeen) {
  for (const auto& op : registered_operators()) {
    if (op.schema().name() != "performer::favor_attention") continue;
    Draw draw(1);
    const OperatorCall right = valid_call(op, draw);
    const auto results = right.run();
    EXPECT_EQ(broken_contract(right, results), "");
    const auto with = [&](std::size_t index, const at::IValue& value) {
      OperatorCall changed = right;
      changed.arguments[index] = value;
      return broken_contract(changed, results);
    };
    const Tensor q = right.arguments[0].toTensor(), v = right.arguments[2].toTensor();
    EXPECT_NE(with(0, q.to(at::kInt)), "");
    EXPECT_NE(with(0, at::cat({q, q}, 3)), "");
    EXPECT_NE(with(2, at::cat({v, v}, 2)), "");
    EXPECT_NE(with(2, at::cat({v, v}, 3)), "") << "the output of the right call is not its own";
    EXPECT_NE(with(9, at::ones({1, 1}, at::kFloat)), "");
  }
}

TEST(OperatorCallsTest, EveryRegisteredOperatorIsCalled) {
  Draw draw(1);
  const auto operators = registered_operators();
  EXPECT_GE(operators.size(), 18);
  for (const auto& op : operators) EXPECT_NO_THROW(valid_call(op, draw).run()) << op.schema();
}

}  // namespace
}  // namespace performer::testing
