#include "performer/fit/unfinished.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "performer/core/error.h"
#include "performer/fit/fit.h"
#include "tests/fit/sharp_model.h"
#include "tests/support/temporary_folder.h"

namespace performer::fit {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

ExitCode code_of(const std::function<void()>& act, std::string& words) {
  try {
    act();
  } catch (const Error& error) {
    words = error.what();
    return error.code();
  }
  return ExitCode::kOk;
}

const Json kIdentity = {{"text", "abc"}, {"rows", 8}};

TEST(UnfinishedTest, GivesBackWhatWasSaved) {
  const testing::TemporaryFolder folder;
  const auto path = folder.path() / "out.partial";
  const Unfinished first(path, kIdentity, false);
  EXPECT_FALSE(first.place());
  const at::Tensor a = at::arange(6, at::kFloat).view({2, 3}), b = at::full({}, 0.1);
  first.save({"model", 7, 0.1}, {{"b", b}, {"a", a}});

  Unfinished again(path, kIdentity, false);
  ASSERT_TRUE(again.place());
  EXPECT_EQ(again.place()->stage, "model");
  EXPECT_EQ(again.place()->step, 7);
  EXPECT_EQ(again.place()->first_loss, 0.1);
  const at::Tensor other_a = at::zeros({2, 3}), other_b = at::zeros({});
  again.load({{"a", other_a}, {"b", other_b}});
  EXPECT_TRUE(at::equal(other_a, a));
  EXPECT_TRUE(at::equal(other_b, b));
  EXPECT_FALSE(again.place());
  again.remove();
  EXPECT_FALSE(fs::exists(path));
}

TEST(UnfinishedTest, RefusesAnotherFitAndDamage) {
  const testing::TemporaryFolder folder;
  const auto path = folder.path() / "out.partial";
  const at::Tensor a = at::arange(6, at::kFloat);
  Unfinished(path, kIdentity, false).save({"model", 7, 0.1}, {{"a", a}});
  std::string words;
  const Json other = {{"text", "abd"}, {"rows", 9}};
  EXPECT_EQ(code_of([&] { Unfinished(path, other, false); }, words), ExitCode::kUsage);
  EXPECT_NE(words.find("another text, rows 8, now 9"), std::string::npos) << words;

  Unfinished fits(path, kIdentity, false);
  EXPECT_EQ(code_of([&] { fits.load({{"a", at::zeros({5})}}); }, words), ExitCode::kCorrupt);

  const auto size = fs::file_size(path);
  std::fstream(path).seekp(static_cast<std::streamoff>(size) - 1).put('x');
  EXPECT_EQ(code_of([&] { Unfinished(path, kIdentity, false); }, words), ExitCode::kCorrupt);
  EXPECT_NE(words.find("--restart"), std::string::npos) << words;
  EXPECT_FALSE(Unfinished(path, kIdentity, true).place());
  EXPECT_FALSE(fs::exists(path));
}

// All that a fit of three stages leaves, stopped after every step that `stops` names.
std::vector<at::Tensor> fitted(const fs::path& path, std::vector<std::int64_t> stops) {
  stops.push_back(-1);
  for (const auto stop : stops) {
    auto exact = sharp_model(exact_config(false));
    auto converted = converted_from(exact, 0);
    const Samples samples(Text(), data::byte_space(), {.length = 16, .seed = 2});
    Unfinished unfinished(path, kIdentity, false);
    FitOptions options;
    options.rows = 2, options.calibration = 2;
    options.attention_steps = 3, options.model_steps = 3, options.weight_steps = 3;
    options.unfinished = &unfinished, options.save_seconds = 0;
    std::int64_t steps = 0;
    options.stop = [&] { return ++steps == stop; };
    Fit fit(exact, converted, samples, options);
    try {
      fit.calibrate(), fit.fit_attention(), fit.fit_model(), fit.round();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kPreempted) << error.what();
      continue;
    }
    unfinished.remove();
    std::vector<at::Tensor> all;
    for (const auto& p : converted->parameters()) all.push_back(p.detach().clone());
    for (const auto& b : converted->buffers()) all.push_back(b.clone());
    return all;
  }
  return {};
}

TEST(UnfinishedTest, AStoppedFitEndsWithTheSameBits) {
  const testing::TemporaryFolder folder;
  const auto whole = fitted(folder.path() / "whole", {});
  for (const std::vector<std::int64_t>& stops :
       {std::vector<std::int64_t>{1}, {3}, {5}, {9}, {2, 2, 4}}) {
    const auto parts = fitted(folder.path() / "parts", stops);
    ASSERT_EQ(parts.size(), whole.size());
    for (std::size_t i = 0; i < whole.size(); ++i) {
      EXPECT_TRUE(at::equal(parts[i], whole[i])) << "tensor " << i << ", stop " << stops.front();
    }
  }
}

}  // namespace
}  // namespace performer::fit
