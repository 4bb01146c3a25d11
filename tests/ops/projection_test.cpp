#include "performer/ops/projection/projection.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <iomanip>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "performer/ops/projection/blocks.h"
#include "tests/support/message_of.h"

namespace performer {
namespace {

constexpr ProjectionKind kAllKinds[] = {ProjectionKind::kIid, ProjectionKind::kOrthogonal,
                                        ProjectionKind::kSimplex, ProjectionKind::kHadamard,
                                        ProjectionKind::kGivens};
constexpr ProjectionNorm kBothNorms[] = {ProjectionNorm::kChi, ProjectionNorm::kSqrtD};

// What an entry of the projection may change by, as a share of itself; in float32 the errors of a
// few operations.
struct Rounded {
  ProjectionRounding rounding;
  double change;
};
constexpr Rounded kBothRoundings[] = {{ProjectionRounding::kNone, 3e-7},
                                      {ProjectionRounding::kBf16, 1.0 / 256}};

ProjectionOptions make(ProjectionKind kind, ProjectionNorm norm = ProjectionNorm::kChi,
                       std::optional<std::int64_t> heads = {}) {
  ProjectionOptions options;
  options.kind = kind;
  options.norm = norm;
  options.heads = heads;
  return options;
}

// FNV-1a, 64 bits, over the bytes of numbers, lowest byte first.
template <class Bits, class T>
std::uint64_t hash_bits(const T* data, std::int64_t count) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto bits = std::bit_cast<Bits>(data[i]);
    for (std::size_t byte = 0; byte < sizeof bits; ++byte) {
      hash = (hash ^ (bits >> 8 * byte & 0xff)) * 0x100000001b3;
    }
  }
  return hash;
}

struct Golden {
  const char *kind, *norm;
  std::uint64_t square, wide, tall;  // hashes at (M, D) = (16, 16), (5, 7), (70, 31)
};

constexpr Golden kUnrounded[] = {
    // clang-format off
    {"iid", "chi", 0xf74c368c8c1d22f6, 0x109909bc85468919, 0x6964036c06eaa77e},
    {"iid", "sqrt_d", 0x56fbe4fa849a7bcb, 0x098a523fa4fc1c03, 0x3ef94dd60ce6e0f4},
    {"orthogonal", "chi", 0x929c883f0dc2a7e1, 0x6650bf8772075efa, 0x7e3858c20432e2fb},
    {"orthogonal", "sqrt_d", 0x072646fa46473411, 0x3c14e1d5f1b5f323, 0x6453eb2eaf316469},
    {"simplex", "chi", 0x6f9881987e6a632d, 0xd37620817df365c7, 0x54dcfd9544079bb0},
    {"simplex", "sqrt_d", 0xf767f90b6e7de394, 0xa19e2334ca104ac9, 0xd48d6f6ec30ae6d7},
    {"hadamard", "chi", 0x47f95a30904f6064, 0xef9297f7b0459c29, 0x4443f5beb31f5ab5},
    {"hadamard", "sqrt_d", 0xa58d8b4092b89205, 0xce6fb6e7a2301008, 0x5dd64e1fdf87b519},
    {"givens", "chi", 0x2023374de28bb574, 0x9ac60eaaa15d5e73, 0x354665d5406e89a9},
    {"givens", "sqrt_d", 0x3b853c3b26329429, 0x00d122a8fb6c3425, 0x1519c45a0da6c4be},
    // clang-format on
};

constexpr Golden kOnGrid[] = {
    // clang-format off
    {"iid", "chi", 0xbadbae4da20734b3, 0x5813b9cbf6f23daa, 0x40f0b93472aaddd3},
    {"iid", "sqrt_d", 0x7b3b349a429357b6, 0x06a50fd1e7e0e29b, 0xadb2a61afc21bb58},
    {"orthogonal", "chi", 0xf7522d698a836c17, 0xb64614cb2af15e3b, 0x037d0afbeee02667},
    {"orthogonal", "sqrt_d", 0x7b153db8cd66d3de, 0xc23d1ae5898f51c5, 0xfd600ee9d2e8beeb},
    {"simplex", "chi", 0x2745d2e66a2455c1, 0x2206e09ed6cb43c4, 0xf905058e68131627},
    {"simplex", "sqrt_d", 0x7f4fb8e9f441493c, 0x63ea4b1b1e0357a6, 0x549a72df6a50d7dc},
    {"hadamard", "chi", 0x97b913b6329a44de, 0xce9febe48dcb4ad2, 0x154501c50d35c7ea},
    {"hadamard", "sqrt_d", 0xa58d8b4092b89205, 0xb9c9eb2a561c9e60, 0x49dfab06ef13cae9},
    {"givens", "chi", 0x2b94716494a66b0c, 0xb0217df21820bc90, 0x4177922a48897eeb},
    {"givens", "sqrt_d", 0x52b9896e8248f116, 0x7c395d7be5b7027d, 0x46adfc67f4b3766e},
    // clang-format on
};

std::uint64_t golden_hash(const Golden& golden, ProjectionRounding rounding,
                          std::int64_t num_features, std::int64_t dim) {
  auto options = make(parse_projection_kind(golden.kind), parse_projection_norm(golden.norm), 2);
  options.rounding = rounding;
  options.seed = -81985529216486896;  // uses all 64 bits
  options.layer = 3;
  options.draw = 1'000'000'007;
  const Tensor w = draw_projection(num_features, dim, options);
  return hash_bits<std::uint32_t>(w.const_data_ptr<float>(), w.numel());
}

void expect_golden(std::span<const Golden> all, ProjectionRounding rounding) {
  for (const Golden& golden : all) {
    const auto hash = [&](std::int64_t num_features, std::int64_t dim) {
      return golden_hash(golden, rounding, num_features, dim);
    };
    const std::uint64_t square = hash(16, 16), wide = hash(5, 7), tall = hash(70, 31);
    EXPECT_TRUE(square == golden.square && wide == golden.wide && tall == golden.tall)
        << std::hex << std::setfill('0') << "{\"" << golden.kind << "\", \"" << golden.norm
        << "\", 0x" << std::setw(16) << square << ", 0x" << std::setw(16) << wide << ", 0x"
        << std::setw(16) << tall << "},";
  }
}

TEST(DrawProjection, GivesTheSameBitsOnEveryMachine) {
  expect_golden(kUnrounded, ProjectionRounding::kNone);
  expect_golden(kOnGrid, ProjectionRounding::kBf16);
}

TEST(DrawBlock, GivesTheSameBitsOnEveryMachineBeforeRounding) {
  // In float64 every rounding shows: a fused multiply-add or a reordered sum changes these hashes.
  const auto hash = [](ProjectionKind kind) {
    std::vector<double> rows(31 * 31);
    draw_block({7, 1, 2, 3}, make(kind), {0, 31, 31}, rows.data());
    return hash_bits<std::uint64_t>(rows.data(), 31 * 31);
  };
  EXPECT_EQ(hash(ProjectionKind::kIid), 0xb16c912b0461c199);
  EXPECT_EQ(hash(ProjectionKind::kOrthogonal), 0xd43a2b70b87c4698);
  EXPECT_EQ(hash(ProjectionKind::kSimplex), 0x5e0e66e4e383be89);
}

TEST(DrawProjection, GivesTheSameBitsForEveryThreadCount) {
  const int threads = at::get_num_threads();
  for (const auto kind : kAllKinds) {
    at::set_num_threads(1);
    const Tensor one = draw_projection(70, 31, make(kind, ProjectionNorm::kSqrtD, 3));
    at::set_num_threads(2);
    const Tensor two = draw_projection(70, 31, make(kind, ProjectionNorm::kSqrtD, 3));
    EXPECT_TRUE(at::equal(one, two)) << to_string(kind);
  }
  at::set_num_threads(threads);
}

TEST(DrawProjection, DiffersBetweenSeedsLayersHeadsAndDraws) {
  for (const auto kind : kAllKinds) {
    const auto options = make(kind, ProjectionNorm::kChi, 2);
    auto seed = options, layer = options, draw = options;
    seed.seed = 1;
    layer.layer = 1;
    draw.draw = 1;
    const Tensor base = draw_projection(8, 8, options);
    EXPECT_FALSE(at::equal(base[0], base[1])) << "heads, " << to_string(kind);
    for (const auto& other : {seed, layer, draw}) {
      EXPECT_FALSE(at::equal(base[0], draw_projection(8, 8, other)[0])) << to_string(kind);
    }
    EXPECT_FALSE(at::equal(draw_projection(8, 8, layer), draw_projection(8, 8, draw)));
  }
}

TEST(DrawProjection, WithoutHeadsIsHeadZeroAndFewerRowsAreTheLeadingOnes) {
  for (const auto kind : kAllKinds) {
    for (const auto norm : kBothNorms) {
      const Tensor many = draw_projection(45, 13, make(kind, norm, 3));  // [3, 45, 13]
      EXPECT_EQ(many.sizes(), (at::IntArrayRef{3, 45, 13}));
      EXPECT_EQ(many.scalar_type(), at::kFloat);
      EXPECT_TRUE(at::equal(draw_projection(45, 13, make(kind, norm)), many[0]));
      for (const std::int64_t rows : {1, 12, 13, 14, 30}) {
        EXPECT_TRUE(
            at::equal(draw_projection(rows, 13, make(kind, norm)), many[0].narrow(0, 0, rows)))
            << to_string(kind) << ", " << rows << " rows";
      }
    }
  }
}

TEST(DrawProjection, KindsShareTheirNormsAndOrthogonalIsTheQrOfIid) {
  const auto draw = [](ProjectionKind kind) {
    auto options = make(kind);
    options.rounding = ProjectionRounding::kNone;
    return draw_projection(40, 16, options);
  };
  const Tensor iid = draw(ProjectionKind::kIid);
  for (const auto kind : kAllKinds) {
    EXPECT_LT((draw(kind).norm(2, -1) / iid.norm(2, -1) - 1).abs().max().item<double>(), 1e-6);
  }
  const Tensor orthogonal = draw(ProjectionKind::kOrthogonal);
  EXPECT_TRUE(at::allclose(orthogonal[0], iid[0], 1e-6, 1e-6));  // the first row of a QR stays
}

// Cosines between the rows of each block: [blocks, d, d].
Tensor block_cosines(const Tensor& w, std::int64_t d) {
  const Tensor rows = w.to(at::kDouble).view({-1, d, w.size(-1)});
  const Tensor unit = rows / rows.norm(2, -1, true);
  return unit.matmul(unit.transpose(-1, -2));
}

// The largest difference between the cosines of the rows and what the kind promises.
double worst_cosine(ProjectionKind kind, std::int64_t d, ProjectionRounding rounding) {
  auto options = make(kind);
  options.rounding = rounding;
  const Tensor identity = at::eye(d, at::kDouble);
  const bool corners = kind == ProjectionKind::kSimplex && d > 1;
  const Tensor wanted = corners ? identity - (1 - identity) / static_cast<double>(d - 1) : identity;
  return (block_cosines(draw_projection(3 * d, d, options), d) - wanted).abs().max().item<double>();
}

TEST(DrawProjection, RowsOfABlockAreOrthogonalOrCornersOfASimplex) {
  for (const auto& [rounding, change] : kBothRoundings) {
    for (const std::int64_t d : {1, 2, 16, 64}) {
      for (const auto kind : kAllKinds) {
        if (kind == ProjectionKind::kIid) continue;
        const double worst = worst_cosine(kind, d, rounding);
        // Both of two unit rows move by `change` at most, and a few roundings come on top.
        EXPECT_LT(worst, 2 * change + 6e-7) << to_string(kind);
        std::ostringstream name;
        name << to_string(kind) << ", d " << d << ", change " << change;
        RecordProperty(name.str(), std::to_string(worst * 1e3) + "e-3");
      }
    }
  }
}

TEST(DrawProjection, SqrtDNormsAreSqrtD) {
  for (const auto& [rounding, change] : kBothRoundings) {
    for (const auto kind : kAllKinds) {
      for (const std::int64_t d : {1, 2, 3, 5, 16, 31}) {
        auto options = make(kind, ProjectionNorm::kSqrtD, 50);
        options.rounding = rounding;
        const Tensor w = draw_projection(33, d, options).to(at::kDouble);
        const Tensor norms = w.norm(2, -1) / std::sqrt(static_cast<double>(d));
        EXPECT_LT((norms - 1).abs().max().item<double>(), change) << to_string(kind) << ", d " << d;
      }
    }
  }
}

TEST(DrawProjection, ChiNormsHaveTheMomentsOfChiAndAreIndependent) {
  constexpr std::int64_t kD = 16, kDraws = 2000;
  for (const auto kind : kAllKinds) {
    const Tensor w = draw_projection(kD, kD, make(kind, ProjectionNorm::kChi, kDraws));
    const Tensor squares = w.to(at::kDouble).square().sum(-1);  // [draws, D], chi^2: mean D, var 2D
    const Tensor centred = squares - kD;
    const double n = kD * kDraws;
    EXPECT_LT(std::abs(centred.mean().item<double>()) * std::sqrt(n / (2.0 * kD)), 4.0);
    // Fourth central moment of chi^2_D: 12 D (D + 4).
    const double fourth = 12.0 * kD * (kD + 4.0) - 4.0 * kD * kD;
    EXPECT_LT(std::abs(centred.square().mean().item<double>() - 2.0 * kD) * std::sqrt(n / fourth),
              4.0)
        << to_string(kind);
    const double covariance = (centred.select(1, 0) * centred.select(1, 1)).mean().item<double>();
    EXPECT_LT(std::abs(covariance) * std::sqrt(static_cast<double>(kDraws)) / (2.0 * kD), 4.0);
  }
}

// Mean of (rows . ones)/sqrt(d) over draws, in standard errors, the worst row of the block.
double worst_mean_along_ones(const Tensor& directions) {
  const Tensor along = directions.to(at::kDouble).sum(-1);  // [draws, rows]
  const Tensor error = along.std(0) / std::sqrt(static_cast<double>(along.size(0)));
  return (along.mean(0) / error).abs().max().item<double>();
}

TEST(DrawProjection, DirectionsHaveNoMeanAlongOnesWhereAnUnfixedQrHas) {
  constexpr std::int64_t kD = 8, kDraws = 8000;
  for (const auto kind : kAllKinds) {
    const Tensor w = draw_projection(kD, kD, make(kind, ProjectionNorm::kSqrtD, kDraws));
    EXPECT_LT(worst_mean_along_ones(w), 4.0) << to_string(kind);
  }
  const Tensor gaussian =
      draw_projection(kD, kD, make(ProjectionKind::kIid, ProjectionNorm::kChi, kDraws));
  const Tensor unfixed = std::get<0>(at::linalg_qr(gaussian.to(at::kDouble).transpose(-1, -2)));
  EXPECT_GT(worst_mean_along_ones(unfixed.transpose(-1, -2)), 20.0);
}

TEST(Orthonormalize, IsTheQrDecompositionWithPositiveDiagonal) {
  for (const auto& [rows, dim] : {std::pair<int, int>{1, 1}, {1, 5}, {3, 5}, {31, 31}, {64, 64}}) {
    const Tensor g = draw_projection(rows, dim, make(ProjectionKind::kIid)).to(at::kDouble);
    const Tensor q = g.clone();  // rows of storage are columns of the decomposed matrix
    orthonormalize(q.mutable_data_ptr<double>(), rows, dim);
    const Tensor r = q.matmul(g.t());  // [rows, rows]
    EXPECT_LT((q.matmul(q.t()) - at::eye(rows, at::kDouble)).abs().max().item<double>(), 1e-13);
    EXPECT_LT(r.tril(-1).abs().max().item<double>(), 1e-12);
    EXPECT_GT(r.diagonal().min().item<double>(), 0.0);
    EXPECT_LT((r.t().matmul(q) - g).abs().max().item<double>(), 1e-12);
  }
}

std::string refusal(std::int64_t num_features, std::int64_t dim, const ProjectionOptions& options) {
  return testing::message_of([&] { draw_projection(num_features, dim, options); });
}

TEST(DrawProjection, NamesTheBadArgumentAndItsValue) {
  ProjectionOptions heads, layer, draw, late;
  heads.heads = 0;
  layer.layer = -1;
  draw.draw = -2;
  late.draw = std::int64_t{1} << 32;
  const auto starts = [](const std::string& text, const std::string& start) {
    EXPECT_EQ(text.substr(0, start.size()), start);
  };
  starts(refusal(0, 4, {}), "draw_projection: num_features must be positive, got 0");
  starts(refusal(4, -3, {}), "draw_projection: dim must be positive, got -3");
  starts(refusal(4, 4, heads), "draw_projection: heads must be positive, got 0");
  starts(refusal(4, 4, layer), "draw_projection: layer must be in 0 ... 4294967295, got -1");
  starts(refusal(4, 4, draw), "draw_projection: draw must be in 0 ... 4294967295, got -2");
  starts(refusal(4, 4, late), "draw_projection: draw must be in 0 ... 4294967295, got 4294967296");
  starts(refusal(4, 1 << 20, {}), "draw_projection: dim must be at most 16384, got 1048576");
  starts(refusal(INT64_MAX, 64, {}),
         "draw_projection: heads * num_features * dim must be at most 2^32, got 1 * "
         "9223372036854775807 * 64");
  EXPECT_THROW(parse_projection_kind("orthonormal"), c10::Error);
  EXPECT_THROW(parse_projection_norm("l2"), c10::Error);
  starts(testing::message_of([] { parse_projection_rounding("fp16"); }),
         "draw_projection: rounding must be bf16 or none, got \"fp16\"");
}

}  // namespace
}  // namespace performer
