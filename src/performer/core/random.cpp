#include "performer/core/random.h"

#include <bit>
#include <cfloat>
#include <cmath>
#include <limits>

#ifdef __FAST_MATH__
#error "the random draw promises the same bits everywhere: build without -ffast-math"
#endif
static_assert(FLT_EVAL_METHOD == 0, "doubles must be evaluated as doubles, not on x87");
static_assert(std::numeric_limits<double>::is_iec559);

namespace performer {
namespace {

constexpr int kRounds = 10;
constexpr std::uint32_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
constexpr std::uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;

constexpr double kLn2High = 0x1.62e42feep-1;       // 32 trailing zeros: exact times an exponent
constexpr double kLn2Low = 0x1.a39ef35793c76p-33;  // ln 2 - kLn2High
constexpr std::uint64_t kSqrtHalf = 0x3FE6A09E667F3BCD;  // bits of sqrt(1/2)
constexpr std::uint64_t kOne = 0x3FF0000000000000;
constexpr int kMantissaBits = 52;

// 2 atanh(s) - 2s = s z (2/3 + z (2/5 + ...)), z = s^2 <= (3 - 2 sqrt 2)^2: 12 terms pass 2^-60.
constexpr std::array<double, 12> kLogSeries = [] {
  std::array<double, 12> c{};
  for (std::size_t k = 0; k < c.size(); ++k) c[k] = 2.0 / static_cast<double>(2 * k + 3);
  return c;
}();

// Odd multiples of 2^-53 in (-1, 1): symmetric and never 0.
double centered_uniform(std::uint32_t low, std::uint32_t high) {
  const std::uint64_t bits = (static_cast<std::uint64_t>(high) << 32 | low) >> 11;
  const auto odd = static_cast<std::int64_t>(2 * bits + 1) - (std::int64_t{1} << 53);
  return static_cast<double>(odd) * 0x1p-53;
}

}  // namespace

std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                        std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < kRounds; ++round) {
    const std::uint64_t p0 = static_cast<std::uint64_t>(kMultiplier0) * counter[0];
    const std::uint64_t p1 = static_cast<std::uint64_t>(kMultiplier1) * counter[2];
    counter = {
        static_cast<std::uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(p1),
        static_cast<std::uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(p0)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

double portable_log(double x) {
  // x = 2^exponent (1 + f) with 1 + f in [sqrt(1/2), sqrt 2), taken off the bits.
  const std::uint64_t shifted = std::bit_cast<std::uint64_t>(x) + (kOne - kSqrtHalf);
  const auto exponent = static_cast<double>(static_cast<std::int64_t>(shifted >> kMantissaBits) -
                                            static_cast<std::int64_t>(kOne >> kMantissaBits));
  const std::uint64_t fraction = shifted & ((std::uint64_t{1} << kMantissaBits) - 1);
  const double f = std::bit_cast<double>(fraction + kSqrtHalf) - 1.0;

  // log(1 + f) = 2 atanh(s) = 2s + s R(s^2), and 2s = f - f^2/2 + s f^2/2: the leading f is exact.
  const double s = f / (2.0 + f);
  const double z = s * s;
  double series = 0.0;
  for (std::size_t k = kLogSeries.size(); k-- > 0;) series = z * (series + kLogSeries[k]);
  const double half_square = 0.5 * f * f;
  const double tail = s * (half_square + series) + exponent * kLn2Low;
  return exponent * kLn2High - ((half_square - tail) - f);
}

std::array<std::uint32_t, 4> RandomStream::block(std::uint32_t index, std::uint8_t retry) const {
  const std::uint32_t who = static_cast<std::uint32_t>(key_.head) |
                            static_cast<std::uint32_t>(retry) << 16 |
                            static_cast<std::uint32_t>(stream_) << 24;
  return philox4x32(
      {index, who, key_.layer, key_.draw},
      {static_cast<std::uint32_t>(key_.seed), static_cast<std::uint32_t>(key_.seed >> 32)});
}

std::pair<double, double> RandomStream::normal_pair(std::uint32_t index) const {
  // 1 - pi/4 of the points fall outside the disc: 256 in a row never happen (1e-171).
  for (int retry = 0; retry < 256; ++retry) {
    const auto bits = block(index, static_cast<std::uint8_t>(retry));
    const double a = centered_uniform(bits[0], bits[1]);
    const double b = centered_uniform(bits[2], bits[3]);
    const double s = a * a + b * b;
    if (s >= 1.0) continue;
    const double scale = std::sqrt(-2.0 * portable_log(s) / s);
    return {a * scale, b * scale};
  }
  return {0.0, 0.0};
}

void RandomStream::normals(std::uint64_t first, std::int64_t count, double* out) const {
  const std::uint64_t end = first + static_cast<std::uint64_t>(count);
  for (std::uint64_t pair = first / 2; 2 * pair < end; ++pair) {
    const auto [even, odd] = normal_pair(static_cast<std::uint32_t>(pair));
    if (2 * pair >= first) *out++ = even;
    if (2 * pair + 1 >= first && 2 * pair + 1 < end) *out++ = odd;
  }
}

}  // namespace performer
