#include "performer/infer/sequence_batch.h"

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include <new>
#include <numeric>

#include "performer/infer/readings.h"

namespace performer::infer {
namespace {

using Numbers = std::vector<std::int64_t>;

TEST(PlanBatches, LongestFirstAndWithinTheTokensWithPadding) {
  const auto batches = plan_batches({3, 9, 4, 4, 20, 1}, 12);
  EXPECT_EQ(batches, (std::vector<Numbers>{{4}, {1}, {2, 3, 0}, {5}}));
}

TEST(RunInHalves, TakesFewerRowsUntilTheyFitAndAllOfThemInOrder) {
  Numbers rows(7), done;
  std::iota(rows.begin(), rows.end(), 0);
  std::size_t most = 0;
  run_in_halves(
      rows,
      [&](auto part) {
        if (part.size() > 2) throw std::bad_alloc();
        most = std::max(most, part.size());
        done.insert(done.end(), part.begin(), part.end());
      },
      [](std::int64_t) { FAIL(); });
  EXPECT_EQ(done, rows);
  EXPECT_EQ(most, 2U);
}

TEST(RunInHalves, NamesTheRowThatDoesNotFitAloneAndPassesOtherFailuresOn) {
  const Numbers rows = {5, 6, 7};
  Numbers refused;
  run_in_halves(
      rows,
      [](auto part) {
        for (const auto row : part) {
          if (row == 6) throw std::runtime_error("[enforce fail] can't allocate memory: 1 bytes");
        }
      },
      [&](std::int64_t row) { refused.push_back(row); });
  EXPECT_EQ(refused, Numbers{6});
  EXPECT_THROW(run_in_halves(
                   rows, [](auto) { throw std::runtime_error("another one"); }, [](auto) {}),
               std::runtime_error);
}

// One sequence of tokens, specials included.
class OneSequence final : public data::WholeSequences {
 public:
  explicit OneSequence(Numbers tokens) : tokens_(std::move(tokens)) {}
  std::int64_t count() const override { return 1; }
  std::int64_t tokens(std::int64_t /*sequence*/) const override { return std::ssize(tokens_); }
  void read(std::int64_t /*sequence*/, std::int64_t begin,
            std::span<std::int64_t> out) const override {
    std::copy_n(tokens_.begin() + begin, out.size(), out.begin());
  }
  std::int64_t residues(std::int64_t /*sequence*/) const override {
    return std::ssize(tokens_) - 2;
  }
  std::string id(std::int64_t /*sequence*/) const override { return "one"; }

 private:
  Numbers tokens_;
};

Numbers row_of(const Readings& readings, std::int64_t row) {
  Numbers tokens(static_cast<std::size_t>(readings.tokens(row)));
  readings.read(row, 0, tokens);
  return tokens;
}

TEST(Readings, AreTheSequenceWithChangesAndAMask) {
  const auto space = data::protein_space();
  const OneSequence base({1, 4, 5, 6, 2});
  Readings readings(base, space);
  const auto variant = readings.add_variant({{2, 9}});
  EXPECT_EQ(readings.add_whole(0).end, 1);
  const auto rows = readings.add_each_masked(0, variant);
  EXPECT_EQ(rows.end - rows.begin, 3);  // specials are not masked
  EXPECT_EQ(row_of(readings, 0), (Numbers{1, 4, 5, 6, 2}));
  EXPECT_EQ(row_of(readings, 1), (Numbers{1, space.mask, 9, 6, 2}));
  EXPECT_EQ(row_of(readings, 2), (Numbers{1, 4, space.mask, 6, 2}));
  EXPECT_EQ(readings.behind_mask(2), 9);
  Numbers part(2);
  readings.read(1, 2, part);  // behind the mask
  EXPECT_EQ(part, (Numbers{9, 6}));
}

TEST(ReadBatch, MarksPaddingAndSpecialsAndBeginsAsTheModelWasTrained) {
  auto space = data::protein_space();
  const OneSequence base({1, 4, 5, 2});
  const Numbers rows = {0};
  auto batch = read_batch(base, space, rows);
  EXPECT_TRUE(batch.tokens.equal(at::tensor({1, 4, 5, 2}, at::kLong).unsqueeze(0)));
  EXPECT_TRUE(batch.regular.equal(at::tensor({0, 1, 1, 0}).to(at::kBool).unsqueeze(0)));
  EXPECT_FALSE(batch.input(at::kCPU).key_mask.defined());
  space.start = space.eos;  // rows of joined sequences
  EXPECT_EQ(read_batch(base, space, rows).tokens[0][0].item<std::int64_t>(), space.eos);
  EXPECT_EQ(read_batch(base, space, rows, 2).tokens.size(1), 2);
}

}  // namespace
}  // namespace performer::infer
