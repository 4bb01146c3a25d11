#pragma once

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "performer/ops/reference/reference.h"
#include "tests/support/op_cases.h"

/// How close an operator must come to reference::favor_attention, and the arithmetic of comparing.
namespace performer::testing {

const auto kF64 = at::TensorOptions().dtype(at::kDouble);

/// The largest difference of two elements; NaN where either holds NaN.
inline double max_error(const Tensor& a, const Tensor& b) {
  return (a - b).abs().max().item<double>();
}
double rms(const Tensor& t);
/// RMS of the difference, in float64; 0 for empty tensors, NaN where the tensors hold NaN.
double rms_error(const Tensor& got, const Tensor& want);
/// Equal bit for bit: dtype, sizes and values, NaN equal to NaN.
bool bit_equal(const Tensor& a, const Tensor& b);

/// Allowed RMS error relative to the RMS of v (or to the sum of absolute terms): 1e-12 in float64;
/// in float32 2e-6 up to 4096 tokens, 1e-5 beyond.
double error_bound(at::ScalarType dtype, std::int64_t length);
/// One unit of rounding at 1.
double epsilon(at::ScalarType dtype);

/// All rows of a short sequence; of a long one, those around chunk boundaries and a spread.
Tensor sample_rows(std::int64_t length);

reference::Attention oracle(const Inputs& in, const Tensor& rows = {},
                            std::optional<at::ScalarType> unfused = {});

/// `got` ([B, H, R, Dv], the given rows of the result) against the definition:
///   float64 and float32: RMS error within error_bound of the RMS of v; sums that are not divided
///   within it of the sum of absolute terms;
///   maps with signs, and bf16 and fp16: within twice the error of the unfused version.
void expect_matches_definition(const OpCase& c, const Inputs& in, const Tensor& got,
                               const Tensor& rows);

/// Errors of `got` weighted by how well its rows are conditioned, |denominator| / sum |terms|: rows
/// of signed maps that divide by almost nothing would drown all others.
double conditioned_error(const Tensor& got, const reference::Attention& exact);

/// The defined differentiable inputs, by name.
std::vector<std::pair<std::string, Tensor*>> differentiable(Inputs& in);
/// A detached copy whose differentiable inputs (q, k, v; or all) are leaves that require gradients.
/// dtype: convert q, k, v to it.
Inputs as_leaves(const Inputs& in, bool parameters, std::optional<at::ScalarType> dtype = {});

/// Gradients of sum(out * dout); inputs that do not reach out get zeros.
std::vector<Tensor> gradients_of(const Tensor& out, const Tensor& dout,
                                 const std::vector<Tensor>& inputs);
/// The gradients of sum(out * dout) in the order of differentiable().
std::vector<Tensor> operator_gradients(const Inputs& in, const Tensor& dout, bool parameters);
/// The same through autograd and the definition, over `rows` (dout must be 0 elsewhere), block by
/// block so that memory stays bounded.
std::vector<Tensor> oracle_gradients(const Inputs& in, const Tensor& dout, bool parameters,
                                     const Tensor& rows,
                                     std::optional<at::ScalarType> unfused = {});

/// Runs `statement`, which must throw with every one of `words` in its message.
template <class Statement>
void expect_throw_with(Statement&& statement, const std::vector<std::string>& words) {
  try {
    statement();
  } catch (const std::exception& error) {
    const std::string message = error.what();
    for (const auto& word : words) {
      EXPECT_NE(message.find(word), std::string::npos)
          << "no '" << word << "' in: " << message.substr(0, message.find('\n'));
    }
    return;
  }
  std::string expected;
  for (const auto& word : words) expected += " '" + word + "'";
  ADD_FAILURE() << "nothing was thrown, expected a message with" << expected;
}

/// Names of parameterised tests.
struct CaseName {
  std::string operator()(const ::testing::TestParamInfo<OpCase>& info) const {
    return std::to_string(info.index) + "_" + info.param.name;
  }
};

}  // namespace performer::testing
