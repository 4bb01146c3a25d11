#include "performer/ops/backends/switches.h"

#include <c10/util/Exception.h>

#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include "performer/kernels/cpu/kernels.h"

namespace performer::backends {
namespace {

struct Word {
  const char* name;
  Switch value;
};

struct Variable {
  const char* name;
  std::vector<Word> words;
};

const Variable& variable_of(at::DeviceType device) {
  static const Variable cpu{"PERFORMER_CPU_KERNELS",
                            {{"auto", kAuto},
                             {"portable", kPortable},
                             {"avx2", kAvx2},
                             {"avx512", kAvx512},
                             {"avx512_bf16", kAvx512Bf16},
                             {"amx", kAmx},
                             {"off", kOff}}};
  static const Variable cuda{
      "PERFORMER_CUDA_KERNELS",
      {{"auto", kAuto}, {"portable", kPortable}, {"hopper", kHopper}, {"off", kOff}}};
  return device == at::kCUDA ? cuda : cpu;
}

bool processor_lacks(Switch value) {
  using kernels::Isa;
  const auto lacks = [](Isa isa) { return !kernels::processor_has(isa); };
  return (value == kAvx2 && lacks(Isa::kAvx2)) || (value == kAvx512 && lacks(Isa::kAvx512)) ||
         (value == kAvx512Bf16 && lacks(Isa::kAvx512Bf16)) || (value == kAmx && lacks(Isa::kAmx));
}

}  // namespace

Switch kernel_switch(at::DeviceType device) {
  const Variable& variable = variable_of(device);
  const char* value = std::getenv(variable.name);
  const std::string given = value == nullptr || *value == '\0' ? "auto" : value;
  const std::string setting = std::string(variable.name) + "=" + given;
  std::string known;
  for (const auto& [name, meaning] : variable.words) {
    if (given == name) {
      if (device == at::kCPU && processor_lacks(meaning)) {
        throw std::invalid_argument(setting +
                                    " asks for instructions this processor does not have");
      }
      return meaning;
    }
    (known += known.empty() ? "" : ", ") += name;
  }
  const std::string problem = setting + " is not one of " + known;
  if (device == at::kCPU) throw std::invalid_argument(problem);
  TORCH_CHECK(false, problem);
}

}  // namespace performer::backends
