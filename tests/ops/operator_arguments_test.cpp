#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/Parallel.h>
#include <fnmatch.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "performer/ops/last_kernel.h"
#include "tests/support/argument_rules.h"
#include "tests/support/argument_variations.h"
#include "tests/support/operator_cases.h"

// Every registered operator is called with each argument wrong in every way. The call must raise an
// error that names the argument, or be right. Whether memory was left alone is what the address
// sanitizer adds.
namespace performer::testing {
namespace {

using at::Tensor;
using c10::IValue;
using torch::jit::Stack;

c10::OperatorHandle handle(const std::string& op) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(("performer::" + op).c_str(), "");
}

struct Outcome {
  std::optional<std::string> error;
  std::vector<Tensor> results;  // also what was written in place
};

void collect(const IValue& value, std::vector<Tensor>& into) {
  if (value.isTensor()) into.push_back(value.toTensor());
  if (!value.isTensorList()) return;
  for (const Tensor& t : value.toTensorVector()) into.push_back(t);
}

Outcome run(const std::string& op, Stack arguments) {
  const auto operation = handle(op);
  Outcome outcome;
  std::vector<Tensor> written;
  const auto& schema = operation.schema().arguments();
  for (std::size_t i = 0; i < schema.size(); ++i) {
    const auto* alias = schema[i].alias_info();
    if (alias != nullptr && alias->isWrite()) collect(arguments[i], written);
  }
  try {
    operation.callBoxed(arguments);
    for (const IValue& result : arguments) collect(result, outcome.results);
    outcome.results.insert(outcome.results.end(), written.begin(), written.end());
  } catch (const c10::Error& error) {
    outcome.error = error.what_without_backtrace();
  } catch (const std::exception& error) {
    outcome.error = std::string("NOT A c10::Error: ") + error.what();
  }
  return outcome;
}

bool has_word(const std::string& text, const std::string& word) {
  if (word == "a") return text.find(" a must") != std::string::npos;  // not the article
  const auto in_word = [&](std::size_t i) {
    return i < text.size() &&
           (std::isalnum(static_cast<unsigned char>(text[i])) != 0 || text[i] == '_');
  };
  for (auto i = text.find(word); i != std::string::npos; i = text.find(word, i + 1)) {
    if (!in_word(i - 1) && !in_word(i + word.size())) return true;  // i - 1: past the end for 0
  }
  return false;
}

// The words by which messages call an argument: Python's names and the parts of a structure.
std::vector<std::string> names_of(const std::string& argument) {
  static const std::map<std::string, std::vector<std::string>> others{
      {"projection", {"W"}},
      {"state_kv", {"initial_state"}},
      {"state_normalizer", {"initial_state"}},
      {"state_log2_scale", {"initial_state"}},
      {"state_near_keys", {"initial_state"}},
      {"state_near_values", {"initial_state"}},
      {"state_near_bias", {"initial_state"}},
      {"state_near_position", {"initial_state"}},
      {"state_fingerprint", {"initial_state"}},
      {"max_seqlen_q", {"max_seqlen"}},
      {"max_seqlen_k", {"max_seqlen"}},
      {"parts", {"row_scale", "signs", "permutation", "cosine", "sine", "projection"}},
      {"causal", {"key_mask"}},
      {"first", {"position"}},
  };
  std::vector<std::string> names{argument};
  const auto found = others.find(argument);
  if (found != others.end()) {
    names.insert(names.end(), found->second.begin(), found->second.end());
  }
  return names;
}

// Names the changed argument or, where two do not fit each other, the other one; and no assertion
// of ours or of torch's failed on the way.
bool is_clear(const std::string& message, const std::string& op, const std::string& argument) {
  if (message.find("INTERNAL ASSERT") != std::string::npos) return false;
  if (message.find("NOT A c10::Error") != std::string::npos) return false;
  // The dispatcher's own refusal of sparse tensors.
  if (message.find("with arguments from the 'Sparse") != std::string::npos) return true;
  const auto called = names_of(argument);
  if (std::any_of(called.begin(), called.end(),
                  [&](const std::string& name) { return has_word(message, name); })) {
    return true;
  }
  const auto& schema = handle(op).schema().arguments();
  return std::any_of(schema.begin(), schema.end(), [&](const c10::Argument& other) {
    const auto names = names_of(other.name());
    return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
      return message.find(": " + name + " must") != std::string::npos ||
             message.find(": initial_state.") != std::string::npos;
    });
  });
}

double tolerance_of(const Tensor& result) {
  const bool narrow = result.scalar_type() == at::kHalf || result.scalar_type() == at::kBFloat16;
  return narrow ? 4e-2 : 1e-4;
}

void expect_close(const Tensor& got, const Tensor& want, const std::string& what) {
  ASSERT_EQ(got.sizes(), want.sizes()) << what;
  if (got.is_meta() || want.is_meta()) return;
  const Tensor a = got.to(at::kDouble), b = want.to(at::kDouble);
  const double tolerance = std::max(tolerance_of(got), tolerance_of(want));
  EXPECT_TRUE(at::allclose(a, b, tolerance, tolerance, /*equal_nan=*/true))
      << what << ": off by " << (a - b).abs().max().item<double>();
}

// A clone: operators write into some of their arguments.
Tensor in_float64(const Tensor& t) {
  if (!t.defined()) return t;
  return t.is_floating_point() ? t.to(at::kDouble, false, /*copy=*/true) : t.clone();
}

// A fingerprint is one of float32 numbers, and parts of a projection keep their dtypes.
IValue in_float64(const c10::Argument& argument, const IValue& value) {
  if (argument.name() == "state_fingerprint") return {};
  if (value.isTensor()) return in_float64(value.toTensor());
  if (!value.isTensorList() || argument.name() == "parts") return value;
  c10::List<Tensor> list;
  for (const Tensor& t : value.toTensorVector()) list.push_back(in_float64(t));
  return list;
}

Stack in_float64(const std::string& op, Stack arguments) {
  const auto schema = handle(op).schema();
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    arguments[i] = in_float64(schema.arguments()[i], arguments[i]);
  }
  return arguments;
}

void expect_float64_result(const OperatorCase& c, const Stack& exact_arguments,
                           const Outcome& outcome, const std::string& what) {
  const Outcome exact = run(c.op, exact_arguments);
  ASSERT_FALSE(exact.error) << what << ": " << *exact.error;
  expect_close(outcome.results.at(0), exact.results.at(0), what);
}

// The gradient of what heads share is the sum of theirs.
Tensor over_heads(const Tensor& gradient, at::IntArrayRef sizes, const std::string& argument) {
  if (gradient.dim() == static_cast<std::int64_t>(sizes.size())) return gradient.sum_to_size(sizes);
  return gradient.sum(argument == "key_bias" || argument == "query_bias" ? 1 : 0);
}

class OperatorArguments : public ::testing::TestWithParam<OperatorCase> {
 protected:
  // Calls of a few numbers: threads would only wait for each other.
  static void SetUpTestSuite() { at::set_num_threads(1); }

  // The right call, but for one argument.
  Stack with(std::size_t index, const IValue& value) const {
    Stack arguments = GetParam().arguments();
    arguments[index] = value;
    return arguments;
  }

  void check(std::size_t index, const Variation& variation) {
    const OperatorCase& c = GetParam();
    const auto operation = handle(c.op);
    const ArgumentOf argument{operation.schema(), good_, index};
    const std::string what = argument.name() + ":" + variation.name;
    const Stack exact = in_float64(c.op, with(index, variation.value));
    const auto plain =
        variation.change == Change::kShape ? plain_form(argument, variation.value) : std::nullopt;
    // Before the call, which may write in place.
    const bool by_rule =
        plain || (variation.change == Change::kValue && is_right_value(argument, variation));
    const Outcome outcome = run(c.op, with(index, variation.value));
    if (outcome.error) {
      EXPECT_TRUE(is_clear(*outcome.error, c.op, argument.name()))
          << what << ": " << *outcome.error;
      return;
    }
    if (variation.change == Change::kLayout) {
      expect_same(outcome, variation.dense.isNone() ? c.arguments() : with(index, variation.dense),
                  what);
      return;
    }
    EXPECT_TRUE(by_rule || is_accepted(what)) << what << " was accepted";
    if (plain) expect_same(outcome, with(index, *plain), what);
    if (c.has_oracle && is_moderate(variation)) expect_float64_result(c, exact, outcome, what);
  }

  // Each pattern of the case's list that served is taken out of `unused_`.
  bool is_accepted(const std::string& what) {
    bool found = false;
    for (const std::string& pattern : GetParam().accepted) {
      if (fnmatch(pattern.c_str(), what.c_str(), FNM_EXTMATCH) != 0) continue;
      unused_.erase(pattern);
      found = true;
    }
    return found;
  }

  // The results are those of the call with `arguments`.
  void expect_same(const Outcome& outcome, Stack arguments, const std::string& what) const {
    const std::string& op = GetParam().op;
    const std::string argument = what.substr(0, what.find(':'));
    const Outcome expected = run(op, std::move(arguments));
    ASSERT_FALSE(expected.error) << what << ": only the changed call passes: " << *expected.error;
    ASSERT_EQ(outcome.results.size(), expected.results.size()) << what;
    for (std::size_t i = 0; i < outcome.results.size(); ++i) {
      const Tensor& got = outcome.results[i];
      Tensor want = expected.results[i];
      if (got.scalar_type() == at::kLong) continue;  // the fingerprint of what was given
      if (argument == "needs" && (got.numel() == 0 || want.numel() == 0)) continue;
      if (op == "favor_attention_backward" && got.sizes() != want.sizes()) {
        want = over_heads(want, got.sizes(), argument);
      }
      expect_close(got, want, what + ", result " + std::to_string(i));
    }
  }

  const Stack good_ = GetParam().arguments();
  std::set<std::string> unused_{GetParam().accepted.begin(), GetParam().accepted.end()};
};

TEST_P(OperatorArguments, AreRefusedByNameOrGiveTheRightAnswer) {
  const OperatorCase& c = GetParam();
  const Outcome outcome = run(c.op, c.arguments());
  ASSERT_FALSE(outcome.error) << *outcome.error;
  if (c.has_oracle) {
    expect_float64_result(c, in_float64(c.op, c.arguments()), outcome, "the right call");
  }
  const auto operation = handle(c.op);
  const auto& schema = operation.schema().arguments();
  for (std::size_t i = 0; i < schema.size(); ++i) {
    for (const Variation& variation : variations(schema[i].real_type(), good_[i])) {
      check(i, variation);
    }
  }
  for (const std::string& pattern : unused_) ADD_FAILURE() << pattern << " accepts nothing";
}

std::string case_name(const ::testing::TestParamInfo<OperatorCase>& info) {
  std::string name = info.param.op + "_" + info.param.name;
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(All, OperatorArguments, ::testing::ValuesIn(operator_cases()), case_name);

TEST(OperatorCases, HaveEveryRegisteredOperator) {
  std::set<std::string> covered, registered;
  for (const auto& c : operator_cases()) covered.insert("performer::" + c.op);
  for (const auto& name : c10::Dispatcher::singleton().getAllOpNames()) {
    if (name.name.rfind("performer::", 0) == 0) registered.insert(name.name);
  }
  EXPECT_EQ(covered, registered) << "see operator_cases.cpp";
}

}  // namespace
}  // namespace performer::testing
