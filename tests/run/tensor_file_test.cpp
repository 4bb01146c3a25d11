#include "performer/run/tensor_file.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>

#include "performer/core/error.h"
#include "performer/core/file.h"
#include "tests/support/failure.h"
#include "tests/support/temporary_folder.h"

namespace performer::run {
namespace {

using ::performer::testing::Failure;
using ::performer::testing::failure_of;
using ::performer::testing::TemporaryFolder;

TEST(TensorFileTest, EveryTypeComesBack) {
  const TemporaryFolder folder;
  NamedTensors tensors;
  for (const auto type : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16, at::kLong, at::kInt,
                          at::kShort, at::kChar, at::kByte, at::kBool}) {
    tensors.emplace_back(c10::toString(type), at::arange(6).reshape({2, 3}).to(type));
  }
  save_tensors(folder / "file", tensors);
  auto loaded = load_tensors(folder / "file");
  ASSERT_EQ(loaded.size(), tensors.size());
  for (auto& [name, tensor] : tensors) {
    tensor = at::zeros_like(tensor);
  }
  load_into(folder / "file", tensors);
  for (const auto& [name, tensor] : loaded) {
    EXPECT_EQ(name, c10::toString(tensor.scalar_type()));
    EXPECT_TRUE(tensor.equal(at::arange(6).reshape({2, 3}).to(tensor.scalar_type()))) << name;
  }
  for (const auto& [name, tensor] : tensors) {
    EXPECT_TRUE(tensor.equal(at::arange(6).reshape({2, 3}).to(tensor.scalar_type()))) << name;
  }
}

TEST(TensorFileTest, SavesValuesNotLayoutsAndLoadsIntoLayouts) {
  const TemporaryFolder folder;
  const at::Tensor turned = at::arange(6, at::kFloat).reshape({2, 3}).t().requires_grad_();
  save_tensors(folder / "file",
               {{"t", turned}, {"empty", at::empty({0, 2})}, {"s", at::scalar_tensor(3)}});
  EXPECT_TRUE(load_tensors(folder / "file").at(0).second.equal(turned));
  at::Tensor target = at::zeros({2, 3}).t();
  target.requires_grad_();
  load_into(folder / "file", {{"t", target}, {"empty", at::empty({0, 2})}, {"s", at::zeros({})}});
  EXPECT_TRUE(target.equal(turned));
}

TEST(TensorFileTest, ReadsTensorsThatAreNotAligned) {
  const TemporaryFolder folder;
  std::string header = R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                       R"("b":{"dtype":"F32","shape":[1],"data_offsets":[1,5]}})";
  const std::string length{static_cast<char>(header.size()), 0, 0, 0, 0, 0, 0, 0};
  write_file_atomic(folder / "file", length + header + std::string("\x07\x00\x00\xc0\x3f", 5));
  EXPECT_EQ(load_tensors(folder / "file").at(1).second.item<float>(), 1.5F);
}

TEST(TensorFileTest, AnotherModelsFileIsRefusedAndNothingIsOverwritten) {
  const TemporaryFolder folder;
  save_tensors(folder / "file",
               {{"a", at::ones({2})}, {"b", at::ones({2, 3})}, {"c", at::ones({1})}});
  const at::Tensor a = at::zeros({2});
  const Failure failure = failure_of([&] {
    load_into(folder / "file", {{"a", a}, {"b", at::zeros({3, 2})}, {"d", at::zeros({1})}});
  });
  EXPECT_EQ(failure.code, ExitCode::kBadInput);
  EXPECT_EQ(failure.message,
            (folder / "file").string() +
                ": checkpoint of another model: \"b\" is [2, 3] in the file, [3, 2] in the model; "
                "\"d\" is not in the file; \"c\" is only in the file");
  EXPECT_EQ(a.sum().item<float>(), 0);
}

TEST(TensorFileTest, TypesAreConvertedOnlyWhereAsked) {
  const TemporaryFolder folder;
  save_tensors(folder / "file", {{"a", at::full({2}, 1.5)}});
  const at::Tensor a = at::zeros({2}, at::kBFloat16);
  EXPECT_EQ(failure_of([&] { load_into(folder / "file", {{"a", a}}); }).code, ExitCode::kBadInput);
  load_into(folder / "file", {{"a", a}}, DtypeRule::kConvert);
  EXPECT_EQ(a.sum().item<float>(), 3);
}

TEST(TensorFileTest, TypesThatNoTensorHasAreNamed) {
  const TemporaryFolder folder;
  const std::string header = R"({"a":{"dtype":"F8_E4M3","shape":[2],"data_offsets":[0,2]}})";
  const std::string length = static_cast<char>(header.size()) + std::string(7, '\0');
  write_file_atomic(folder / "file", length + header + "xy");
  const auto expect_named = [&](const auto& read) {
    const Failure failure = failure_of(read);
    EXPECT_EQ(failure.code, ExitCode::kBadInput);
    EXPECT_EQ(failure.message,
              (folder / "file").string() + ": tensor \"a\" is F8_E4M3, which no checkpoint has");
  };
  expect_named([&] { load_tensors(folder / "file"); });
  expect_named([&] { load_into(folder / "file", {{"a", at::zeros({2})}}, DtypeRule::kConvert); });
}

TEST(TensorFileTest, DamagedFilesAreCorrupt) {
  const TemporaryFolder folder;
  write_file_atomic(folder / "file", "no tensors here, but text");
  EXPECT_EQ(failure_of([&] { load_tensors(folder / "file"); }).code, ExitCode::kCorrupt);
}

}  // namespace
}  // namespace performer::run
