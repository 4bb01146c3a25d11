#include "tests/support/op_cases.h"

#include <array>
#include <tuple>

namespace performer::testing {
namespace {

/// A fixed scramble of (index, salt), so that properties are spread independently of each other.
std::uint64_t scramble(std::uint64_t index, std::uint64_t salt) {
  std::uint64_t z = index * 0x9E3779B97F4A7C15u + salt * 0xBF58476D1CE4E5B9u + 1;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

struct Spread {
  std::uint64_t index;
  bool one_in(std::uint64_t n, std::uint64_t salt) const { return scramble(index, salt) % n == 0; }
  template <class T, std::size_t N>
  T pick(const std::array<T, N>& from, std::uint64_t salt) const {
    return from[scramble(index, salt) % N];
  }
};

std::string name_of(const OpCase& c) {
  std::string name = std::string(to_string(c.map)) + (c.causal() ? "_causal_" : "_both_") +
                     dtype_name(c.dtype) + "_l" + std::to_string(c.length) + "k" +
                     std::to_string(c.keys()) + "d" + std::to_string(c.dim) + "m" +
                     std::to_string(c.features) + "h" + std::to_string(c.heads) +
                     std::to_string(c.key_heads) + std::to_string(c.head_parameters);
  const std::pair<bool, const char*> flags[] = {
      {c.mask, "_mask"},           {c.key_bias, "_keybias"},
      {c.biases, "_biases"},       {c.key_projection, "_kproj"},
      {c.packed, "_packed"},       {c.strided, "_strided"},
      {c.initial_state, "_state"}, {c.renormalize == Renormalize::kNo, "_sum"}};
  for (const auto& [set, text] : flags) {
    if (set) name += text;
  }
  return name;
}

/// What a combination of properties must keep so that the call is legal and the sums finite.
void make_legal(OpCase& c) {
  const bool softmax = takes_log_terms(c.map) || c.map == FeatureMap::kTrigonometric;
  if (!takes_log_terms(c.map)) c.biases = c.key_projection = false;
  if (!softmax) c.key_bias = false;
  if (c.causal() || c.strided) c.key_length = -1;
  if (c.strided) {
    c.key_heads = c.heads;
    c.value_dim = -1;
  }
  if (c.head_parameters > 1 && c.head_parameters != c.heads) c.head_parameters = c.key_heads;
  if (softmax && c.features == 0) c.features = c.dim;
  // Sums that are not divided leave the range of fp16.
  if (c.dtype == at::kHalf) c.renormalize = Renormalize::kYes;
  if (c.packed || c.length >= 1000) c.batch = 1;
}

OpCase spread_case(std::uint64_t n, FeatureMap map, Causality causality, at::ScalarType dtype) {
  const Spread s{n};
  constexpr std::array<std::int64_t, 5> dims{1, 8, 31, 64, 128};
  constexpr std::array<std::pair<std::int64_t, std::int64_t>, 4> heads{
      {{1, 1}, {2, 2}, {2, 1}, {4, 2}}};
  OpCase c{.map = map, .causality = causality, .dtype = dtype};
  // n / 8 counts the maps: each of the 8 (causality, dtype) meets every length, so does each map.
  c.length = case_lengths()[(n + n / 8) % 8];
  c.dim = dims[n % 5];
  const std::int64_t half = std::max<std::int64_t>(1, c.dim / 2);
  c.features = std::array<std::int64_t, 3>{half, c.dim, 2 * c.dim}[n % 3];
  if (s.one_in(4, 1)) c.features = 0;
  if (s.one_in(3, 2)) c.value_dim = 5;
  if (s.one_in(2, 3)) c.key_length = 37;
  std::tie(c.heads, c.key_heads) = s.pick(heads, 4);
  c.head_parameters = s.pick(std::array<std::int64_t, 3>{0, c.key_heads, c.heads}, 5);
  c.mask = s.one_in(3, 6);
  c.key_bias = s.one_in(3, 7);
  c.biases = s.one_in(3, 8);
  c.key_projection = s.one_in(3, 9);
  c.packed = s.one_in(4, 10);
  c.strided = s.one_in(3, 11);
  c.initial_state = s.one_in(3, 12);
  c.renormalize = s.one_in(5, 13) ? Renormalize::kNo : Renormalize::kYes;
  make_legal(c);
  c.name = name_of(c);
  return c;
}

}  // namespace

bool takes_log_terms(FeatureMap map) {
  return map == FeatureMap::kPositive || map == FeatureMap::kLoglinear ||
         map == FeatureMap::kHyperbolic;
}

bool has_signs(FeatureMap map) {
  switch (map) {
    case FeatureMap::kTrigonometric:
    case FeatureMap::kCos:
    case FeatureMap::kTanh:
    case FeatureMap::kIdentity:
    case FeatureMap::kSgn:
    case FeatureMap::kGelu:
      return true;
    default:
      return false;
  }
}

const char* dtype_name(at::ScalarType dtype) {
  switch (dtype) {
    case at::kDouble:
      return "fp64";
    case at::kFloat:
      return "fp32";
    case at::kBFloat16:
      return "bf16";
    default:
      return "fp16";
  }
}

std::vector<OpCase> op_cases() {
  std::vector<OpCase> cases;
  for (const FeatureMap map : all_feature_maps()) {
    for (const Causality causality : {Causality::kBidirectional, Causality::kCausal}) {
      for (const auto dtype : case_dtypes()) {
        cases.push_back(spread_case(cases.size(), map, causality, dtype));
      }
    }
  }
  return cases;
}

std::vector<OpCase> gradient_cases() {
  constexpr std::array<std::int64_t, 4> lengths{1, 7, 65, 130};
  std::vector<OpCase> cases;
  for (const FeatureMap map : all_feature_maps()) {
    for (const Causality causality : {Causality::kBidirectional, Causality::kCausal}) {
      for (const bool mask : {false, true}) {
        for (const Renormalize renormalize : {Renormalize::kYes, Renormalize::kNo}) {
          const auto n = cases.size();
          OpCase c = spread_case(n, map, causality, at::kDouble);
          c.mask = mask;
          c.renormalize = renormalize;
          c.length = lengths[(n + n / 8) % 4];
          c.dim = std::min<std::int64_t>(c.dim, 8);
          c.features = c.features == 0 ? 0 : 6;
          make_legal(c);
          c.name = name_of(c);
          cases.push_back(c);
        }
      }
    }
  }
  return cases;
}

}  // namespace performer::testing
