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
/// the plain version gives without any error. Without keys, values come out of a state alone. What
/// is wrong is wrong by much.
void expect_right(const OpCase& c, const Inputs& in, const Tensor& out) {
  if (c.renormalize == Renormalize::kNo) return;  // nothing bounds the sums of 16 bits
  const Tensor rows = sample_rows(in.q.size(2));
  const auto exact = oracle(in, rows);
  const auto unfused = oracle(in, rows, c.dtype).out;
  ASSERT_EQ(out.sizes(), exact.out.sizes());
  EXPECT_LE(conditioned_error(out, exact),
            8 * conditioned_error(unfused, exact) +
                std::max(1e-11, 16 * epsilon(c.dtype)) * std::max(rms(in.v), rms(exact.out)));
}

/// What is wrong with a valid call of favor_attention; empty: nothing.
std::string judge_attention(const OperatorCall& call, const std::vector<at::IValue>& results) {
  const OpCase& c = *call.problem;
  Inputs in{call.tensor("q"), call.tensor("k"), call.tensor("v"), call.tensor("projection"), {}};
  FavorOptions& o = in.options;
  o.feature_map = c.map, o.causality = c.causality, o.renormalize = c.renormalize;
  o.near = c.near;
  o.key_mask = call.tensor("key_mask");
  o.cu_seqlens_q = call.tensor("cu_seqlens_q"), o.cu_seqlens_k = call.tensor("cu_seqlens_k");
  o.projection_k = call.tensor("projection_k");
  o.bias_q = call.tensor("bias_q"), o.bias_k = call.tensor("bias_k");
  o.key_bias = call.tensor("key_bias"), o.query_bias = call.tensor("query_bias");
  FavorState& state = o.initial_state;
  state.kv = call.tensor("state_kv"), state.normalizer = call.tensor("state_normalizer");
  state.log2_scale = call.tensor("state_log2_scale");
  state.near_keys = call.tensor("state_near_keys");
  state.near_values = call.tensor("state_near_values");
  state.near_bias = call.tensor("state_near_bias");
  state.near_position = call.tensor("state_near_position");
  SCOPED_TRACE(::testing::Message()
               << c.name << " as " << in.q.sizes() << " " << in.k.sizes() << " " << in.v.sizes()
               << " W " << in.W.sizes() << " near " << c.near);
  expect_right(c, in, results[0].toTensor());
  return ::testing::Test::HasFailure() ? "differs from the definition" : std::string();
}

/// What is wrong with a merged state, which must be that of all tokens; empty: nothing.
std::string judge_merged(const OperatorCall& call, const std::vector<at::IValue>& results) {
  const auto sums = [](const Tensor& t, const Tensor& log2) {
    return t * log2.to(at::kDouble).exp2();
  };
  const auto tensor = [&](std::size_t i) { return results[i].toTensor(); };
  const auto& want = call.expected;
  const Tensor got = sums(tensor(1), tensor(2)), whole = sums(want[1], want[2]);
  if (rms_error(got, whole) > 1e-10 * (1 + rms(whole)))
    return "the sums are not those of all tokens";
  for (std::size_t i = 3; i < want.size(); ++i) {
    if (!bit_equal(tensor(i), want[i])) return "another near field than that of all tokens";
  }
  return {};
}

/// What is wrong with a valid call's results; empty: nothing.
std::string judge_valid(const OperatorCall& call, const std::vector<at::IValue>& results) {
  for (const auto& result : results) {
    if (result.isTensor() && !result.toTensor().defined()) return "an undefined result";
  }
  if (call.problem) return judge_attention(call, results);
  return call.expected.empty() ? std::string() : judge_merged(call, results);
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
    const auto with = [&](const char* name, const at::IValue& value) {
      OperatorCall changed = right;
      changed.arguments[static_cast<std::size_t>(*op.schema().argumentIndexWithName(name))] = value;
      return broken_contract(changed, results);
    };
    const Tensor q = right.tensor("q"), v = right.tensor("v");
    EXPECT_NE(with("q", q.to(at::kInt)), "");
    EXPECT_NE(with("q", at::cat({q, q}, 3)), "");
    EXPECT_NE(with("v", at::cat({v, v}, 2)), "");
    EXPECT_NE(with("v", at::cat({v, v}, 3)), "") << "the output of the right call is not its own";
    EXPECT_NE(with("key_mask", at::ones({1, 1}, at::kFloat)), "");
    EXPECT_NE(with("near", kMaxNear + 1), "");
    EXPECT_NE(with("query_bias", at::ones({1, 1})), "");
    EXPECT_NE(with("state_near_keys", at::ones({1, 1})), "");
  }
}

TEST(OperatorCallsTest, EveryRegisteredOperatorIsCalled) {
  Draw draw(1);
  const auto operators = registered_operators();
  EXPECT_GE(operators.size(), 20);
  for (const auto& op : operators) EXPECT_NO_THROW(valid_call(op, draw).run()) << op.schema();
}

}  // namespace
}  // namespace performer::testing
