#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <stdexcept>
#include <vector>

#include "performer/data/alphabet.h"
#include "performer/data/batch_stream.h"
#include "performer/data/permutation.h"
#include "performer/data/prefetch.h"
#include "performer/data/recall.h"
#include "performer/data/sequence_dataset.h"

namespace performer::data {
namespace {

// Sequence i has `lengths[i]` residues, letter number (i + place) % 20.
std::shared_ptr<const Dataset> proteins(const std::vector<std::int64_t>& lengths,
                                        DataConfig config = {}) {
  auto source = std::make_unique<MemorySequences>();
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    std::vector<std::uint8_t> tokens(static_cast<std::size_t>(lengths[i]));
    for (std::size_t k = 0; k < tokens.size(); ++k) {
      tokens[k] = static_cast<std::uint8_t>(alphabet::kFirstLetter + (i + k) % 20);
    }
    source->add(tokens);
  }
  return std::make_shared<SequenceDataset>(config, protein_space(), std::move(source));
}

bool equal(const Batch& a, const Batch& b) {
  return a.tokens.equal(b.tokens) && a.targets.equal(b.targets) && a.samples == b.samples &&
         a.key_mask.defined() == b.key_mask.defined() &&
         (!a.key_mask.defined() || a.key_mask.equal(b.key_mask));
}

TEST(Permutation, IsABijectionForManySizes) {
  std::vector<std::int64_t> sizes;
  for (std::int64_t n = 1; n <= 130; ++n) sizes.push_back(n);
  for (const std::int64_t n : {255, 256, 257, 1000, 4095, 4097, 65536, 100'003}) sizes.push_back(n);
  for (const std::int64_t n : sizes) {
    const Permutation permute(n, {7, 3});
    std::vector<bool> hit(static_cast<std::size_t>(n));
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int64_t to = permute(i);
      ASSERT_TRUE(to >= 0 && to < n && !hit[static_cast<std::size_t>(to)]) << n << " " << i;
      hit[static_cast<std::size_t>(to)] = true;
    }
  }
}

TEST(Permutation, HandlesSizesPastThirtyTwoBits) {
  const std::int64_t n = (std::int64_t{1} << 40) + 12345;
  const Permutation permute(n, {1, 0});
  std::set<std::int64_t> seen;
  for (std::int64_t i = 0; i < 2000; ++i) seen.insert(permute(n - 1 - i));
  EXPECT_EQ(seen.size(), 2000U);
  EXPECT_GT(*seen.rbegin(), n / 2);
  EXPECT_LT(*seen.rbegin(), n);
}

TEST(Permutation, PutsEverySampleAnywhereEquallyOften) {
  std::map<std::int64_t, int> first;
  for (int epoch = 0; epoch < 5000; ++epoch) ++first[Permutation(5, {11, epoch})(0)];
  ASSERT_EQ(first.size(), 5U);
  for (const auto& [sample, count] : first) EXPECT_NEAR(count, 1000, 120) << sample;
}

TEST(Permutation, IsTheSameOnEveryMachine) {
  const Permutation permute(1000, {42, 1});
  const std::vector<std::int64_t> seen = {permute(0), permute(1), permute(2), permute(999)};
  EXPECT_EQ(seen, (std::vector<std::int64_t>{387, 264, 302, 801}));
}

TEST(BatchStream, CausalRowsArePredictedFromBosToEos) {
  const BatchStream stream(proteins({3}), Use::kEvaluation);
  const Batch batch = stream.batch(0, 8);
  EXPECT_TRUE(
      batch.tokens.narrow(1, 0, 5).equal(at::tensor({1, 4, 5, 6, 0}, at::kLong).view({1, 5})));
  EXPECT_TRUE(
      batch.targets.narrow(1, 0, 5).equal(at::tensor({4, 5, 6, 2, -100}, at::kLong).view({1, 5})));
  EXPECT_FALSE(batch.key_mask.defined());
  EXPECT_EQ(batch.num_targets, 4);
  EXPECT_EQ(batch.num_tokens, 4);
  EXPECT_EQ(batch.tokens.size(1), 128);
}

TEST(BatchStream, PadsToTheLongestRowOrToTheFullLength) {
  DataConfig config;
  config.pad_multiple = 16;
  EXPECT_EQ(BatchStream(proteins({3, 20}, config), Use::kEvaluation).batch(0, 2).tokens.size(1),
            32);
  config.pad_multiple = 0;
  EXPECT_EQ(BatchStream(proteins({3, 20}, config), Use::kEvaluation).batch(0, 2).tokens.size(1),
            1024);
}

TEST(BatchStream, CropsFromTheStartInEvaluationAndAnywhereInTraining) {
  DataConfig config;
  config.length = 8;
  const auto data = proteins({18}, config);  // BOS + 18 + EOS: windows begin at 0 ... 11
  const Batch fixed = BatchStream(data, Use::kEvaluation).batch(0, 1);
  EXPECT_EQ(fixed.tokens[0][0].item<std::int64_t>(), alphabet::kBos);
  const BatchStream stream(data, Use::kTraining);
  std::set<std::int64_t> begins;
  bool saw_eos = false;
  for (std::int64_t p = 0; p < 300; ++p) {
    const Batch batch = stream.batch(p, 1);
    EXPECT_EQ(batch.num_targets, 8);
    EXPECT_TRUE(batch.targets.narrow(1, 0, 7).equal(batch.tokens.narrow(1, 1, 7)));
    begins.insert(batch.tokens[0][0].item<std::int64_t>());
    saw_eos |= batch.targets[0][7].item<std::int64_t>() == alphabet::kEos;
  }
  EXPECT_EQ(begins.size(), 12U);
  EXPECT_TRUE(saw_eos);
}

TEST(BatchStream, IsAPureFunctionOfThePosition) {
  DataConfig config;
  config.length = 16;
  config.objective = "masked";
  const auto data = proteins({30, 5, 60, 12, 9, 40, 17}, config);
  const BatchStream stream(data, Use::kTraining), again(data, Use::kTraining);
  for (std::int64_t p = 20; p >= 0; --p) {
    EXPECT_TRUE(equal(stream.batch(p, 3), again.batch(p, 3))) << p;
  }
  config.seed = 1;
  EXPECT_FALSE(
      equal(BatchStream(proteins({30, 5, 60, 12, 9, 40, 17}, config), Use::kTraining).batch(0, 7),
            stream.batch(0, 7)));
}

TEST(BatchStream, GivesEverySampleOnceAnEpochToAnyNumberOfRanks) {
  const auto data = proteins(std::vector<std::int64_t>(53, 4));
  const BatchStream stream(data, Use::kTraining);
  for (const std::int64_t ranks : {1, 2, 3, 4}) {
    constexpr std::int64_t kRows = 5;
    std::vector<std::int64_t> order;
    for (std::int64_t step = 0; static_cast<std::int64_t>(order.size()) < 3 * 53; ++step) {
      for (std::int64_t rank = 0; rank < ranks; ++rank) {
        const auto samples = stream.batch((step * ranks + rank) * kRows, kRows).samples;
        order.insert(order.end(), samples.begin(), samples.end());
      }
    }
    for (std::size_t epoch = 0; epoch < 3; ++epoch) {
      const auto begin = order.begin() + static_cast<std::ptrdiff_t>(53 * epoch);
      EXPECT_EQ(std::set<std::int64_t>(begin, begin + 53).size(), 53U);
    }
    EXPECT_FALSE(std::equal(order.begin(), order.begin() + 53, order.begin() + 53));
  }
}

TEST(Masking, ChoosesFifteenPercentAndKeepsTheEightyTenTenRule) {
  DataConfig config;
  config.objective = "masked";
  config.length = 4096;
  const auto data = proteins(std::vector<std::int64_t>(64, 4000), config);
  const Batch batch = BatchStream(data, Use::kTraining).batch(0, 64);
  const BatchStream plain(proteins(std::vector<std::int64_t>(64, 4000),
                                   [] {
                                     DataConfig c;
                                     c.length = 4096;
                                     return c;
                                   }()),
                          Use::kTraining);
  const Batch original = plain.batch(0, 64);
  const auto chosen = batch.targets != kIgnore;
  const double all = 64.0 * 4000.0, count = chosen.sum().item<double>();
  EXPECT_EQ(batch.num_targets, static_cast<std::int64_t>(count));
  EXPECT_NEAR(count / all, 0.15, 0.003);
  const auto width = original.tokens.size(1);
  const auto tokens = batch.tokens.narrow(1, 0, width), truth = original.tokens;
  const auto kept = chosen.narrow(1, 0, width);
  EXPECT_TRUE(
      batch.targets.narrow(1, 0, width).masked_select(kept).equal(truth.masked_select(kept)));
  const double masked = (tokens == alphabet::kMask).sum().item<double>();
  const double same = ((tokens == truth) & kept).sum().item<double>();
  EXPECT_NEAR(masked / count, 0.8, 0.01);
  EXPECT_NEAR(same / count, 0.1 + 0.1 / 25, 0.01);  // a random letter may be the same one
  EXPECT_GE(tokens.masked_select(kept & (tokens != alphabet::kMask)).min().item<std::int64_t>(),
            alphabet::kFirstLetter);
  EXPECT_TRUE(batch.key_mask.defined());
  EXPECT_EQ(batch.key_mask.sum().item<std::int64_t>(), 64 * 4002);
}

TEST(Masking, LeavesNoRowWithoutATarget) {
  DataConfig config;
  config.objective = "masked";
  const BatchStream stream(proteins(std::vector<std::int64_t>(200, 1), config), Use::kTraining);
  EXPECT_EQ(stream.batch(0, 200).num_targets, 200);
}

TEST(Recall, JointPairsAreAskedForByTheirKey) {
  DataConfig config;
  config.task = "recall";
  config.recall_keys = 12;
  config.recall_values = 5;
  const auto data = std::make_shared<RecallDataset>(config, recall_space(config), Split::kTrain);
  EXPECT_EQ(data->space().vocabulary, 1 + 60 + 12 + 5);
  const Batch batch = BatchStream(data, Use::kTraining).batch(0, 100);
  ASSERT_EQ(batch.tokens.size(1), 16);
  const auto tokens = batch.tokens.accessor<std::int64_t, 2>();
  const auto targets = batch.targets.accessor<std::int64_t, 2>();
  for (std::int64_t r = 0; r < 100; ++r) {
    std::map<std::int64_t, std::int64_t> value_of;
    for (std::int64_t i = 0; i < 8; ++i) {
      EXPECT_EQ(targets[r][i], kIgnore);
      value_of[(tokens[r][i] - 1) / 5] = (tokens[r][i] - 1) % 5;
    }
    EXPECT_EQ(value_of.size(), 8U);
    for (std::int64_t i = 8; i < 16; ++i) {
      EXPECT_EQ(targets[r][i], 1 + 60 + 12 + value_of.at(tokens[r][i] - 61));
    }
  }
}

TEST(Recall, SeparateKeysAreFollowedByTheirValues) {
  DataConfig config;
  config.task = "recall";
  config.recall_form = "separate";
  const auto data = std::make_shared<RecallDataset>(config, recall_space(config), Split::kTrain);
  const Batch batch = BatchStream(data, Use::kTraining).batch(0, 100);
  ASSERT_EQ(batch.tokens.size(1), 31);
  EXPECT_EQ(batch.num_targets, 800);
  const auto tokens = batch.tokens.accessor<std::int64_t, 2>();
  const auto targets = batch.targets.accessor<std::int64_t, 2>();
  for (std::int64_t r = 0; r < 100; ++r) {
    std::map<std::int64_t, std::int64_t> value_of;
    for (std::int64_t i = 0; i < 16; i += 2) value_of[tokens[r][i]] = tokens[r][i + 1];
    EXPECT_EQ(value_of.size(), 8U);
    for (std::int64_t i = 0; i < 31; ++i) {
      const bool query = i >= 16 && i % 2 == 0;
      EXPECT_EQ(targets[r][i], query ? value_of.at(tokens[r][i]) : kIgnore);
      EXPECT_EQ(tokens[r][i] > 16, i % 2 == 1);
      EXPECT_LT(tokens[r][i], data->space().vocabulary);
    }
  }
}

TEST(Recall, HeldOutRowsAreOthers) {
  DataConfig config;
  config.task = "recall";
  const auto valid = std::make_shared<RecallDataset>(config, recall_space(config), Split::kValid);
  const auto train = std::make_shared<RecallDataset>(config, recall_space(config), Split::kTrain);
  EXPECT_EQ(valid->size(), 1000);
  EXPECT_FALSE(equal(BatchStream(valid, Use::kEvaluation).batch(0, 4),
                     BatchStream(train, Use::kEvaluation).batch(0, 4)));
}

TEST(Prefetcher, DeliversInOrderWithManyThreads) {
  const auto make = [](std::int64_t index) {
    Batch batch;
    batch.samples = {index};
    return batch;
  };
  Prefetcher prefetcher(make, {.first = 5, .end = 300, .depth = 7, .threads = 4});
  std::int64_t expected = 5;
  while (!prefetcher.done()) EXPECT_EQ(prefetcher.next().samples[0], expected++);
  EXPECT_EQ(expected, 300);
}

TEST(Prefetcher, HandsErrorsToTheConsumerAtTheirPlace) {
  const auto make = [](std::int64_t index) -> Batch {
    if (index == 3) throw std::runtime_error("three");
    return {};
  };
  Prefetcher prefetcher(make, {.end = 6, .threads = 2});
  for (int i = 0; i < 3; ++i) EXPECT_NO_THROW(prefetcher.next());
  EXPECT_THROW(prefetcher.next(), std::runtime_error);
  EXPECT_NO_THROW(prefetcher.next());
}

TEST(Prefetcher, StopsWhileBatchesAreLeft) {
  const Prefetcher prefetcher([](std::int64_t) { return Batch{}; }, {.depth = 2, .threads = 3});
}

}  // namespace
}  // namespace performer::data
