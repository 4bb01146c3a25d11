#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "performer/ops/favor/attention.h"

/// The favor_attention problems of tests/cases, which C++, Python and GPU tests share.
namespace performer::testing {

struct OpCase {
  std::string name{};
  FeatureMap map = FeatureMap::kPositive;
  Causality causality = Causality::kBidirectional;
  at::ScalarType dtype = at::kFloat;
  std::int64_t batch = 2;
  std::int64_t heads = 2;
  std::int64_t key_heads = 2;
  std::int64_t length = 65;
  std::int64_t key_length = -1;  // -1: length
  std::int64_t dim = 8;
  std::int64_t value_dim = -1;       // -1: dim
  std::int64_t features = 16;        // rows of W; 0: no projection
  std::int64_t head_parameters = 0;  // heads of W, biases, key_bias; 0: shared, without a head axis
  bool mask = false;                 // one key in four removed; the last sequence has no key at all
  bool key_bias = false;
  bool biases = false;
  bool key_projection = false;
  bool packed = false;   // sequences of different lengths, one of them empty
  bool strided = false;  // views of one [B, L, 3, H, D]
  bool query_bias = false;
  bool initial_state = false;
  Renormalize renormalize = Renormalize::kYes;
  double magnitude = 1;   // standard deviation of q and k
  std::int64_t near = 0;  // block of the near field; the states of one end in all parts of it

  bool causal() const { return causality == Causality::kCausal; }
  std::int64_t keys() const { return key_length < 0 ? length : key_length; }
  std::int64_t values() const { return value_dim < 0 ? dim : value_dim; }
};

inline std::ostream& operator<<(std::ostream& out, const OpCase& c) { return out << c.name; }

struct Inputs {
  Tensor q, k, v, W;
  FavorOptions options;
};

inline const std::vector<at::ScalarType>& case_dtypes() {
  static const std::vector<at::ScalarType> dtypes{at::kDouble, at::kFloat, at::kBFloat16,
                                                  at::kHalf};
  return dtypes;
}

/// The maps that take biases and key projections.
bool takes_log_terms(FeatureMap map);
/// Whether features can be negative, so that sums cancel.
bool has_signs(FeatureMap map);
const char* dtype_name(at::ScalarType dtype);

/// A case in the notation of tests/cases, and back; throws for a line of another spelling.
std::string line_of(const OpCase& c);
OpCase parse_case(const std::string& line);

/// The lines of tests/cases/`table`.txt.
std::vector<OpCase> read_cases(const std::string& table);
/// Every map x causality x dtype, the other properties spread over them.
std::vector<OpCase> op_cases();
/// Every map x causality x mask x renormalisation in float64, short: for gradients.
std::vector<OpCase> gradient_cases();

/// op_cases() that `keep` accepts.
template <class Predicate>
std::vector<OpCase> op_cases_where(Predicate keep) {
  std::vector<OpCase> kept;
  for (auto& c : op_cases()) {
    if (keep(c)) kept.push_back(std::move(c));
  }
  return kept;
}

/// The same numbers on every run and machine; device: where the tensors are put.
Inputs make_inputs(const OpCase& c, std::uint64_t seed = 0, at::Device device = at::kCPU);

inline Tensor attend(const Inputs& in) {
  return favor_attention(in.q, in.k, in.v, in.W, in.options);
}

}  // namespace performer::testing
