#include "tests/support/op_cases.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <fstream>
#include <regex>
#include <sstream>
#include <stdexcept>
#include <string_view>
#include <utility>

namespace performer::testing {
namespace {

constexpr std::array kDtypes{std::pair{at::kDouble, "fp64"}, std::pair{at::kFloat, "fp32"},
                             std::pair{at::kBFloat16, "bf16"}, std::pair{at::kHalf, "fp16"}};

// In the order of a line.
constexpr std::array<std::pair<std::string_view, bool OpCase::*>, 8> kFlags{
    {{"mask", &OpCase::mask},
     {"key_bias", &OpCase::key_bias},
     {"biases", &OpCase::biases},
     {"key_projection", &OpCase::key_projection},
     {"packed", &OpCase::packed},
     {"strided", &OpCase::strided},
     {"query_bias", &OpCase::query_bias},
     {"state", &OpCase::initial_state}}};

[[noreturn]] void refuse(const std::string& line) {
  throw std::runtime_error(line + ": is not a case; tests/cases/README.md explains the notation");
}

at::ScalarType dtype_of(const std::string& name) {
  for (const auto& [dtype, known] : kDtypes) {
    if (name == known) return dtype;
  }
  return at::ScalarType::Undefined;
}

void set_flag(OpCase& c, const std::string& flag) {
  if (flag == "sum") c.renormalize = Renormalize::kNo;
  for (const auto& [name, member] : kFlags) {
    if (flag == name) c.*member = true;
  }
}

// What GoogleTest allows in names.
std::string test_name(std::string line) {
  std::ranges::replace_if(
      line, [](unsigned char letter) { return std::isalnum(letter) == 0; }, '_');
  return line;
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
  for (const auto& [known, name] : kDtypes) {
    if (dtype == known) return name;
  }
  return "another dtype";
}

std::string line_of(const OpCase& c) {
  std::ostringstream line;
  line << to_string(c.map) << (c.causal() ? "-causal-" : "-both-") << dtype_name(c.dtype)  //
       << "-l" << c.length << "k" << c.keys() << "d" << c.dim << "v" << c.values() << "m"
       << c.features << "-b" << c.batch << "h" << c.heads << "." << c.key_heads << "."
       << c.head_parameters;
  if (c.magnitude != 1) line << "-x" << c.magnitude;
  if (c.near > 0) line << "-near" << c.near;
  for (const auto& [name, member] : kFlags) {
    if (c.*member) line << "-" << name;
  }
  if (c.renormalize == Renormalize::kNo) line << "-sum";
  return line.str();
}

OpCase parse_case(const std::string& line) {
  static const std::regex kLine(
      "([a-z0-9]+)-(causal|both)-([a-z0-9]+)-l(\\d+)k(\\d+)d(\\d+)v(\\d+)m(\\d+)"
      "-b(\\d+)h(\\d+)\\.(\\d+)\\.(\\d+)(-x\\d+)?(-near\\d+)?((-[a-z_]+)*)");
  std::smatch part;
  if (!std::regex_match(line, part, kLine)) refuse(line);
  const auto number = [&](std::size_t group) { return std::stoll(part[group]); };
  OpCase c{.name = test_name(line), .map = parse_feature_map(part[1].str())};
  if (part[2] == "causal") c.causality = Causality::kCausal;
  c.dtype = dtype_of(part[3]);
  c.length = number(4);
  if (number(5) != c.length) c.key_length = number(5);
  c.dim = number(6);
  if (number(7) != c.dim) c.value_dim = number(7);
  c.features = number(8);
  c.batch = number(9);
  c.heads = number(10);
  c.key_heads = number(11);
  c.head_parameters = number(12);
  if (part[13].matched) c.magnitude = std::stod(part[13].str().substr(2));
  if (part[14].matched) c.near = std::stoll(part[14].str().substr(5));
  const std::string flags = part[15];
  for (std::size_t begin = 0; begin < flags.size();) {
    const auto end = std::min(flags.find('-', begin + 1), flags.size());
    set_flag(c, flags.substr(begin + 1, end - begin - 1));
    begin = end;
  }
  if (line_of(c) != line) refuse(line);
  return c;
}

std::vector<OpCase> read_cases(const std::string& table) {
  const std::string path = PERFORMER_TEST_CASES "/" + table + ".txt";
  std::ifstream file(path);
  if (!file) throw std::runtime_error(path + ": cannot be read");
  std::vector<OpCase> cases;
  for (std::string line; std::getline(file, line);) cases.push_back(parse_case(line));
  return cases;
}

std::vector<OpCase> op_cases() { return read_cases("every_map"); }
std::vector<OpCase> gradient_cases() { return read_cases("gradients"); }

}  // namespace performer::testing
