#pragma once

// The scales of a state (ops/favor/state.h): integers, which kernels hold as floats.
namespace performer::kernels {

inline constexpr float kEmptyScale = -0x1p30F;    // no key arrived
inline constexpr float kReachedScale = -0x1p29F;  // scales above it come from a key
inline constexpr float kScaleLimit = 0x1p28F;     // those of keys lie within +-kScaleLimit

}  // namespace performer::kernels
