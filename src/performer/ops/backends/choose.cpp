#include "performer/ops/backends/choose.h"

namespace performer::backends {
namespace {

struct TableRow {
  Path path;
  const char* name;
  at::DeviceType device;
  unsigned passes;    // that the path has
  unsigned switches;  // values of the device's variable under which it serves
};

constexpr unsigned kAnyPass = kForward | kBackward | kStep;

/// Who serves a call: the first row that can. What a path can beyond this is for its kernels to say
/// (Call::serves). kCpuAmx and kCpuAvx512Bf16 are forward passes by products of bfloat16 pairs; the
/// backward pass is that of kCpuAvx512.
constexpr TableRow kTable[] = {
    {Path::kCudaDecode, "cuda/decode", at::kCUDA, kStep, kAuto},
    {Path::kCudaHopper, "cuda/hopper", at::kCUDA, kAnyPass, kAuto | kHopper},
    {Path::kCudaPortable, "cuda/portable", at::kCUDA, kAnyPass, kAuto | kPortable},
    {Path::kCpuAmx, "cpu/amx", at::kCPU, kForward | kStep, kAuto | kAmx},
    {Path::kCpuAvx512Bf16, "cpu/avx512_bf16", at::kCPU, kForward | kStep, kAuto | kAvx512Bf16},
    {Path::kCpuAvx512, "cpu/avx512", at::kCPU, kAnyPass, kAuto | kAvx512 | kAvx512Bf16 | kAmx},
    {Path::kCpuAvx2, "cpu/avx2", at::kCPU, kAnyPass, kAuto | kAvx2},
    {Path::kCpuPortable, "cpu/portable", at::kCPU, kAnyPass, kAuto | kPortable},
};
constexpr TableRow kComposedRow = {Path::kComposed, "composed", at::kMeta, kAnyPass, 0};

const TableRow& row_of(Path path) {
  for (const TableRow& row : kTable) {
    if (row.path == path) return row;
  }
  return kComposedRow;
}

}  // namespace

Path choose(Pass pass, at::DeviceType device, Switch chosen,
            const std::function<bool(Path)>& serves) {
  for (const TableRow& row : kTable) {
    const bool asked =
        row.device == device && (row.passes & pass) != 0 && (row.switches & chosen) != 0;
    if (asked && serves(row.path)) return row.path;
  }
  return Path::kComposed;
}

const char* name(Path path) { return row_of(path).name; }

at::DeviceType device_of(Path path) { return row_of(path).device; }

bool rounds_alike(Path path, Path other) {
  return path == other || (device_of(path) == at::kCPU && device_of(other) == at::kCPU);
}

}  // namespace performer::backends
