#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <map>

#include "performer/models/attention_kind.h"
#include "performer/models/reversible.h"
#include "tests/models/tiny_model.h"

namespace performer::models::testing {
namespace {

using Gradients = std::map<std::string, Tensor>;

Gradients gradients(Transformer& model, const Tensor& x) {
  model->zero_grad();
  model->logits(model->hidden({x, {}})).square().mean().backward();
  Gradients found;
  for (const auto& item : model->named_parameters()) {
    found[item.key()] = item.value().grad().clone();
  }
  return found;
}

TEST(Checkpointing, GivesTheSameGradientsBitForBit) {
  for (const auto& kind : attention_kinds()) {
    for (const double dropout : {0.0, 0.3}) {
      ModelConfig c = tiny(kind);
      c.dropout = dropout;
      c.positions = "rotary";
      auto plain = make(c);
      c.checkpointing = true;
      auto recomputed = make(c);
      for (auto* model : {&plain, &recomputed}) {
        (*model)->train();
        (*model)->set_dropout_seed(9);
      }
      const auto want = gradients(plain, tokens(2, 12)), got = gradients(recomputed, tokens(2, 12));
      for (const auto& [name, gradient] : want) {
        EXPECT_TRUE(got.at(name).equal(gradient)) << kind << " " << name;
      }
    }
  }
}

TEST(Checkpointing, TakesTheMasksOfItsOwnPass) {
  ModelConfig c = tiny("favor");
  c.dropout = 0.3;
  auto plain = make(c);
  c.checkpointing = true;
  auto recomputed = make(c);
  std::vector<Tensor> found;
  for (auto* model : {&plain, &recomputed}) {
    (*model)->train();
    (*model)->set_dropout_seed(1);
    const Tensor loss = (*model)->hidden({tokens(2, 12), {}}).square().mean();
    (*model)->set_dropout_seed(2);  // the next step's, before this one's backward pass
    loss.backward();
    found.push_back((*model)->named_parameters()["layers.0.feed_forward.input.weight"].grad());
  }
  EXPECT_TRUE(found[0].equal(found[1]));
}

TEST(Reversible, GivesTheGradientsOfPlainAutograd) {
  for (const char* kind : {"favor", "exact", "lsh", "mean"}) {
    ModelConfig c = tiny(kind);
    c.layers = 4;
    c.reversible = true;
    auto model = make(c);
    std::vector<Block> blocks;
    blocks.reserve(4);
    for (std::int64_t i = 0; i < 4; ++i) {
      auto& block = model->block(i);
      blocks.emplace_back(std::static_pointer_cast<BlockImpl>(block.shared_from_this()));
      block.to(at::kDouble);
    }
    const Tensor start = (at::arange(2 * 12 * 16, at::kDouble) * 1.3).sin().view({2, 12, 16});
    Pass pass;
    pass.dropout = {0.2, 5};
    std::vector<Tensor> found[2];
    for (const auto reversal : {Reversal::kStore, Reversal::kReconstruct}) {
      model->zero_grad();
      const Tensor x = start.clone().requires_grad_();
      const Tensor out = run_reversible(blocks, x, pass, reversal);
      (out * out.detach().cos()).sum().backward();
      auto& list = found[reversal == Reversal::kReconstruct ? 1 : 0];
      list = {out.detach(), x.grad()};
      for (auto& block : blocks) {
        for (const auto& p : block->parameters()) list.push_back(p.grad().clone());
      }
    }
    ASSERT_EQ(found[0].size(), found[1].size());
    EXPECT_TRUE(found[0][0].equal(found[1][0]));
    for (std::size_t i = 1; i < found[0].size(); ++i) {
      EXPECT_LE(max_difference(found[0][i], found[1][i]),
                1e-6 * (found[0][i].abs().max().item<double>() + 1e-3))
          << kind << " " << i;
    }
  }
}

TEST(Reversible, TrainsAWholeModel) {
  ModelConfig c = tiny("favor");
  c.reversible = true;
  auto model = make(c);
  for (const auto& [name, gradient] : gradients(model, tokens(2, 12))) {
    EXPECT_GT(gradient.abs().sum().item<double>(), 0) << name;
  }
}

TEST(Dropout, IsAFunctionOfItsKeyAlone) {
  const Tensor x = at::ones({64, 1000});
  const DropoutKey key{0.25, 42};
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const Tensor one = dropout(x, key);
  at::set_num_threads(3);
  EXPECT_TRUE(dropout(x, key).equal(one));
  at::set_num_threads(threads);
  EXPECT_FALSE(dropout(x, key.child(0)).equal(one));
  EXPECT_FALSE(dropout(x, key.child(0)).equal(dropout(x, key.child(1))));
  EXPECT_NEAR(one.eq(0).to(at::kFloat).mean().item<double>(), 0.25, 0.01);
  EXPECT_NEAR(one.mean().item<double>(), 1, 0.01);
  EXPECT_EQ(one.max().item<float>(), 1 / 0.75F);
}

TEST(Dropout, IsNoOperationAtProbabilityZero) {
  const Tensor x = at::ones({3});
  EXPECT_TRUE(dropout(x, {0, 42}).is_same(x));
}

TEST(Dropout, FollowsTheStepAndTrainingMode) {
  ModelConfig c = tiny("favor");
  c.dropout = 0.5;
  auto model = make(c);
  const auto run = [&](std::uint64_t seed) {
    model->set_dropout_seed(seed);
    return all_logits(model, tokens(2, 8));
  };
  EXPECT_TRUE(run(1).equal(run(2)));
  model->train();
  EXPECT_FALSE(run(1).equal(run(2)));
  EXPECT_TRUE(run(1).equal(run(1)));
}

/// Central differences along one random direction of all parameters.
double directional_error(Transformer& model, const Tensor& x) {
  model->to(at::kDouble);
  const auto loss = [&] { return model->logits(model->hidden({x, {}})).sin().mean(); };
  model->zero_grad();
  loss().backward();
  const at::NoGradGuard no_grad;
  std::vector<Tensor> directions;
  double slope = 0;
  std::int64_t salt = 0;
  for (auto& p : model->parameters()) {
    const Tensor d = (at::arange(p.numel(), at::kDouble) * 1.7 + static_cast<double>(++salt)).sin();
    directions.push_back(d.view(p.sizes()));
    slope += (p.grad() * directions.back()).sum().item<double>();
  }
  const auto at_step = [&](double step) {
    for (std::size_t i = 0; i < directions.size(); ++i) {
      model->parameters()[i].add_(directions[i], step);
    }
    return loss().item<double>();
  };
  const double h = 1e-6, ahead = at_step(h), behind = at_step(-2 * h);
  return std::abs((ahead - behind) / (2 * h) - slope) / std::abs(slope);
}

TEST(Gradients, MatchFiniteDifferences) {
  for (const auto& kind : attention_kinds()) {
    for (const char* positions : {"learned", "rotary"}) {
      ModelConfig c = tiny(kind);
      c.positions = positions;
      c.activation = c.positions == "rotary" ? "swiglu" : "relu";
      c.norm = c.positions == "rotary" ? "rms" : "layer";
      auto model = make(c);
      EXPECT_LT(directional_error(model, tokens(2, 9)), 1e-4) << kind << " " << positions;
    }
  }
}

}  // namespace
}  // namespace performer::models::testing
