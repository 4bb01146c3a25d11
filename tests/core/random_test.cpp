#include "performer/core/random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <vector>

namespace performer {
namespace {

using Words = std::array<std::uint32_t, 4>;

TEST(Philox, GivesThePublishedKnownAnswers) {
  // Rows "philox4x32 10" of Random123's tests/kat_vectors.
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
            (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(RandomStream, PacksEveryFieldIntoACounterOrKeyWordOfItsOwn) {
  const RandomKey key{0x0123456789abcdef, 0xdeadbeef, 0xface, 0x12345678};
  EXPECT_EQ(RandomStream(key, 0x5a).block(0x87654321, 0xc3),
            philox4x32({0x87654321, 0x5ac3face, 0xdeadbeef, 0x12345678}, {0x89abcdef, 0x01234567}));
}

TEST(RandomStream, GivesOtherBitsWhenAnyFieldDiffers) {
  const RandomKey base{1, 2, 3, 4};
  std::set<Words> seen;
  const auto add = [&](RandomKey key, int stream, std::uint32_t index, int retry) {
    seen.insert(RandomStream(key, static_cast<std::uint8_t>(stream))
                    .block(index, static_cast<std::uint8_t>(retry)));
  };
  std::size_t cases = 0;
  for (int bit = 0; bit < 64; ++bit, ++cases) {
    RandomKey key = base;
    key.seed ^= std::uint64_t{1} << bit;
    add(key, 0, 0, 0);
  }
  for (int bit = 0; bit < 32; ++bit, cases += 3) {
    RandomKey layer = base, draw = base;
    layer.layer ^= 1U << bit;
    draw.draw ^= 1U << bit;
    add(layer, 0, 0, 0);
    add(draw, 0, 0, 0);
    add(base, 0, 1U << bit, 0);
  }
  for (int bit = 0; bit < 16; ++bit, ++cases) {
    RandomKey head = base;
    head.head = static_cast<std::uint16_t>(head.head ^ 1U << bit);
    add(head, 0, 0, 0);
  }
  for (int bit = 0; bit < 8; ++bit, cases += 2) {
    add(base, 1 << bit, 0, 0);
    add(base, 0, 0, 1 << bit);
  }
  EXPECT_EQ(seen.size(), cases);
}

TEST(RandomStream, NormalsAreTheSameInAnyPieces) {
  const RandomStream stream({7, 1, 2, 3}, 4);
  std::vector<double> whole(101);
  stream.normals(0, 101, whole.data());
  for (const std::int64_t first : {0, 1, 2, 37, 100}) {
    for (const std::int64_t count : {0, 1, 2, 3, 64}) {
      if (first + count > 101) continue;
      std::vector<double> piece(65, -1.0);
      stream.normals(static_cast<std::uint64_t>(first), count, piece.data());
      EXPECT_TRUE(std::equal(piece.begin(), piece.begin() + count, whole.begin() + first));
      EXPECT_EQ(piece[static_cast<std::size_t>(count)], -1.0) << "wrote past the end";
    }
  }
}

TEST(RandomStream, NormalsHaveNormalMomentsAndDistribution) {
  constexpr std::int64_t kCount = 1'000'000;
  std::vector<double> x(kCount);
  RandomStream({42, 0, 0, 0}, 0).normals(0, kCount, x.data());
  const double n = kCount;
  double sums[5] = {}, lag = 0.0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    for (int p = 1; p <= 4; ++p) sums[p] += std::pow(x[i], p);
    if (i > 0) lag += x[i] * x[i - 1];
  }
  // Each statistic over its own standard error; 4 standard errors are passed once in 16,000.
  EXPECT_LT(std::abs(sums[1] / n) * std::sqrt(n), 4.0);
  EXPECT_LT(std::abs(sums[2] / n - 1.0) * std::sqrt(n / 2.0), 4.0);
  EXPECT_LT(std::abs(sums[3] / n) * std::sqrt(n / 15.0), 4.0);
  EXPECT_LT(std::abs(sums[4] / n - 3.0) * std::sqrt(n / 96.0), 4.0);
  EXPECT_LT(std::abs(lag / n) * std::sqrt(n), 4.0);
  // Kolmogorov-Smirnov; 1.95 is the critical value for 0.1 %.
  std::sort(x.begin(), x.end());
  double distance = 0.0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double cdf = 0.5 * std::erfc(-x[i] / std::sqrt(2.0));
    const auto below = static_cast<double>(i);
    distance = std::max({distance, cdf - below / n, (below + 1.0) / n - cdf});
  }
  EXPECT_LT(distance * std::sqrt(n), 1.95);
}

TEST(PortableLog, IsWithinOneUlpOfTheTruth) {
  const RandomStream stream({3, 0, 0, 0}, 0);
  double worst = 0.0;
  const auto check = [&](double x) {
    const long double exact = std::log(static_cast<long double>(x));
    const double ulp = std::nextafter(std::abs(static_cast<double>(exact)), INFINITY) -
                       std::abs(static_cast<double>(exact));
    worst = std::max(worst, static_cast<double>(std::abs(portable_log(x) - exact)) / ulp);
  };
  for (std::uint32_t i = 0; i < 200'000; ++i) {
    const auto words = stream.block(i);
    const double mantissa = 1.0 + words[0] * 0x1p-32 + words[1] * 0x1p-60;
    check(std::ldexp(mantissa, -static_cast<int>(words[2] % 106)));
    check(1.0 - words[3] * 0x1p-36);
  }
  check(std::nextafter(1.0, 0.0));
  EXPECT_LT(worst, 1.0);
  EXPECT_EQ(portable_log(1.0), 0.0);
  RecordProperty("worst_ulp", std::to_string(worst));
}

TEST(Arithmetic, IsNotContracted) {
  // With a fused multiply-add the rounding error of the product shows; the draw's bits rely on
  // none.
  const volatile double a = 1.0 + 0x1p-30, c = 1.0 + 0x1p-29;
  const double x = a, y = c;
  EXPECT_EQ(x * x - y, 0.0);
}

}  // namespace
}  // namespace performer
