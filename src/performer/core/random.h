#pragma once

#include <array>
#include <cstdint>
#include <utility>

namespace performer {

/// Philox4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3",
/// 2011): a bijection of 128-bit counters for each 64-bit key, in integer arithmetic alone.
std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                        std::array<std::uint32_t, 2> key);

/// Natural logarithm of a positive normal number to 1 ulp, in + - * / alone: libm's last bits
/// differ between machines, these do not.
double portable_log(double x);

/// Who draws. Any two different keys give independent sequences.
struct RandomKey {
  std::uint64_t seed = 0;
  std::uint32_t layer = 0;
  std::uint16_t head = 0;
  std::uint32_t draw = 0;
};

/// Random access to the sequences of one key; `stream` tells the purposes of a key apart. Every
/// value is a function of (key, stream, index): order of use, threads and machine do not matter.
///
/// Philox key     = seed, low word first.
/// Philox counter = { index, head | retry << 16 | stream << 24, layer, draw }.
/// All fields keep all their bits, so that distinct (seed, layer, head, draw, stream, index, retry)
/// never share a block.
class RandomStream {
 public:
  RandomStream(const RandomKey& key, std::uint8_t stream) : key_(key), stream_(stream) {}

  /// 128 random bits.
  std::array<std::uint32_t, 4> block(std::uint32_t index, std::uint8_t retry = 0) const;

  /// Two independent standard normals by Marsaglia's polar method; a rejected point moves on to the
  /// next retry of the same index. Only IEEE + - * / sqrt.
  std::pair<double, double> normal_pair(std::uint32_t index) const;

  /// Normals first ... first + count - 1 of the sequence whose pairs are normal_pair(0), (1), ...
  /// first + count must not pass 2^33.
  void normals(std::uint64_t first, std::int64_t count, double* out) const;

 private:
  RandomKey key_;
  std::uint8_t stream_;
};

}  // namespace performer
