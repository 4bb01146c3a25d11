// Where the tensors of a folder lie in a model, in both directions.
#include <ATen/ATen.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>

#include <string>

#include "performer/core/error.h"
#include "performer/core/file.h"
#include "performer/ops/rotary/rotary.h"
#include "performer/pretrained/describe.h"
#include "performer/pretrained/new_folder.h"
#include "performer/pretrained/tensor_views.h"
#include "performer/run/tensor_file.h"
#include "tests/support/failure.h"
#include "tests/support/temporary_folder.h"

namespace performer::pretrained {
namespace {

using performer::testing::failure_of;
using performer::testing::TemporaryFolder;

Description described(const std::string& name) {
  const auto text = read_file(std::string(PERFORMER_CORPUS) + "/pretrained/" + name);
  return describe(HfConfig(text, "config.json"), {.frequencies = name == "esm"});
}

models::Transformer model_of(const Description& d) {
  auto config = d.model;
  config.attention.kind = "exact";
  return models::Transformer(config, 1);
}

class EveryArchitecture : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Types, EveryArchitecture,
                         ::testing::Values("bert", "esm", "gpt2", "llama", "qwen2"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(EveryArchitecture, GivesEachNumberOfTheModelOnePlace) {
  const auto d = described(GetParam());
  const auto model = model_of(d);
  const auto parameters = parameters_of(model);
  check_covered(d, parameters);
  for (const auto& [name, tensor] : parameters) tensor.zero_();
  for (const auto& place : d.places) {
    const auto view = view_of(parameters, place, d.model.head_dim());
    EXPECT_EQ(view.numel(), c10::multiply_integers(place.shape)) << place.name;
    view.add_(1);
  }
  for (const auto& [name, tensor] : parameters) {
    EXPECT_TRUE(tensor.eq(1).all().item<bool>()) << name << " is left out, or written twice";
  }
}

TEST(Places, MissingOnesAreNoticed) {
  auto d = described("gpt2");
  const auto model = model_of(d);
  d.places.pop_back();
  EXPECT_THROW(check_covered(d, parameters_of(model)), c10::Error);
}

// Positions there turn the halves of a head, here neighbours; scores must be equal.
TEST(Places, RotaryRowsGiveTheSameScores) {
  const std::int64_t heads = 3, width = 8, dim = 5, length = 7;
  const at::Tensor weights[] = {at::linspace(-1, 1, heads * width * dim, at::kDouble).sin(),
                                at::linspace(-2, 3, heads * width * dim, at::kDouble).cos()};
  const at::Tensor x = at::linspace(-3, 2, length * dim, at::kDouble).view({1, length, dim}).sin();
  const Place place{"q", "w", {heads * width, dim}, Layout::kRotaryRows};
  RotaryTables tables(width);
  const auto turns = tables.turns(0, length, x.options());
  const at::Tensor angle =
      at::outer(at::arange(length, at::kDouble),
                at::pow(10000.0, at::arange(0, width, 2, at::kDouble).div(-8.0)));
  const at::Tensor cos = at::cat({angle, angle}, 1).cos(), sin = at::cat({angle, angle}, 1).sin();
  at::Tensor theirs[2], ours[2];
  for (int i = 0; i < 2; ++i) {
    const at::Tensor w = weights[i].view({heads * width, dim});
    const at::Tensor q = at::linear(x, w).view({length, heads, width}).transpose(0, 1);
    const auto half = q.chunk(2, -1);
    theirs[i] = q * cos + at::cat({-half[1], half[0]}, -1) * sin;
    const at::Tensor parameter = at::zeros_like(w);
    const auto view = view_of({{"w", parameter}}, place, width);
    view.copy_(w.view(view.sizes()));
    const auto turned = rotate(at::linear(x, parameter).view({1, length, heads, width}), turns);
    ours[i] = turned[0].transpose(0, 1);
    EXPECT_TRUE(view.reshape(w.sizes()).equal(w)) << "and the way back";
  }
  const auto scores = [](const at::Tensor* qk) { return at::matmul(qk[0], qk[1].mT()); };
  EXPECT_LT((scores(theirs) - scores(ours)).abs().max().item<double>(), 1e-12);
}

// Several slices of a few MiB, with a last one that is shorter.
TEST(Tensors, AreReadAndComparedWholeInSlices) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "a.safetensors";
  const at::Tensor values = at::arange(3001 * 501, at::kFloat).view({3001, 501}) / 7;
  run::save_tensors(file, {{"a", values}});
  const safetensors::Reader reader(file);
  const FileTensor tensor{&reader, &reader.tensors().front(), file.string()};
  const at::Tensor transposed = at::zeros({501, 3001});
  read_into(tensor, transposed.t());
  EXPECT_TRUE(transposed.t().equal(values));
  EXPECT_TRUE(holds(tensor, transposed.t()));
  transposed[0][0] = -0.0;
  EXPECT_FALSE(holds(tensor, transposed.t())) << "0 and -0 are two numbers";
  transposed[0][0] = 0;
  transposed[500][3000] += 1;
  EXPECT_FALSE(holds(tensor, transposed.t()));
}

TEST(Tensors, ThatAreNotFiniteAreRefusedInAnySlice) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "a.safetensors";
  at::Tensor values = at::zeros({3001, 501}, at::kHalf);
  values[3000][500] = INFINITY;
  run::save_tensors(file, {{"a", values}});
  const safetensors::Reader reader(file);
  const auto failure = failure_of([&] {
    read_into({&reader, &reader.tensors().front(), "f"}, at::zeros({3001, 501}));
  });
  EXPECT_EQ(failure.code, ExitCode::kCorrupt);
  EXPECT_EQ(failure.message, "f: tensor \"a\" holds NaN or infinity");
}

TEST(NewFolders, ClearAwayWhatKilledProgramsHaveLeft) {
  const TemporaryFolder folder;
  const auto place = [&](const char* name) { return folder.path() / name; };
  // Of a killed program, of a living one, and of others.
  for (const char* name :
       {".out.12.tmp", ".out.13.tmp", ".out.x.tmp", ".out..tmp", ".outer.1.tmp"}) {
    std::filesystem::create_directory(place(name));
    write_file_atomic(place(name) / "a", "b");
  }
  write_file_atomic(place(".out.14.tmp"), "a file");
  std::filesystem::create_directory_symlink(place(".out.x.tmp"), place(".out.15.tmp"));
  const FileDescriptor living(::open(place(".out.13.tmp").c_str(), O_RDONLY | O_DIRECTORY));
  ASSERT_EQ(::flock(living.get(), LOCK_EX), 0);

  NewFolder out(place("out"));
  EXPECT_FALSE(is_there(place(".out.12.tmp")));
  for (const char* name : {".out.13.tmp", ".out.x.tmp", ".out..tmp", ".outer.1.tmp"}) {
    EXPECT_TRUE(is_there(place(name) / "a")) << name;
  }
  EXPECT_TRUE(is_there(place(".out.14.tmp")));
  EXPECT_TRUE(is_there(place(".out.15.tmp")));
  const auto own = out.path();
  NewFolder again(place("out"));
  EXPECT_TRUE(is_there(own)) << "its program lives";
}

TEST(NewFolders, AppearWholeOrNotAtAll) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "out";
  {
    NewFolder out(path.string() + "/");
    write_file_atomic(out.path() / "a", "b");
    EXPECT_FALSE(is_there(path));
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  NewFolder out(path);
  write_file_atomic(out.path() / "a", "b");
  out.commit();
  EXPECT_EQ(read_file(path / "a"), "b");
  EXPECT_EQ(failure_of([&] { NewFolder again(path); }).code, ExitCode::kUsage);
}

}  // namespace
}  // namespace performer::pretrained
