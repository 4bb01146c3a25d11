#include "performer/core/safetensors.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "performer/core/error.h"
#include "performer/core/file.h"
#include "performer/core/random.h"
#include "tests/support/failure.h"
#include "tests/support/temporary_folder.h"

namespace performer::safetensors {
namespace {

using ::performer::testing::Failure;
using ::performer::testing::failure_of;
using ::performer::testing::TemporaryFolder;

// What the reference implementation (safetensors 0.8.0, Python) writes for
// save({"b": int16 [2, 1] of (1, -2), "a": float32 [1] of 1.5}, metadata={"format": "pt"}).
std::string golden() {
  std::string header =
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
      R"("b":{"dtype":"I16","shape":[2,1],"data_offsets":[4,8]}})";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  std::string file(8, '\0');
  file[0] = static_cast<char>(header.size());
  return file + header + std::string("\x00\x00\xc0\x3f\x01\x00\xfe\xff", 8);
}

std::string file_of(std::string_view header, std::size_t num_data_bytes,
                    std::uint64_t claimed_length) {
  std::string file(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) {
    file[i] = static_cast<char>(claimed_length >> (8 * i) & 0xff);
  }
  return file + std::string(header) + std::string(num_data_bytes, '\1');
}

std::string file_of(std::string_view header, std::size_t num_data_bytes) {
  return file_of(header, num_data_bytes, header.size());
}

Header parse(const std::string& file) {
  return parse_header(std::as_bytes(std::span(file)), std::ssize(file), "x.safetensors");
}

// The problem that the reader names for one tensor "t" of the given fields over 8 bytes.
std::string problem(const std::string& fields) {
  const std::string file = file_of(R"({"t":{)" + fields + "}}", 8);
  const Failure failure = failure_of([&] { parse(file); });
  return failure.code == ExitCode::kCorrupt ? failure.message : "not refused as corrupt";
}

TEST(SafetensorsTest, WritesTheBytesOfTheReferenceImplementation) {
  const TemporaryFolder folder;
  const std::array<std::int16_t, 2> b{1, -2};
  const float a = 1.5F;
  FileWriter out(folder / "file");
  write(out, {{"b", Dtype::kI16, {2, 1}}, {"a", Dtype::kF32, {1}}}, {{"format", "pt"}},
        [&](std::size_t i) {
          return i == 0 ? std::as_bytes(std::span(b)) : std::as_bytes(std::span(&a, 1));
        });
  out.finish();
  EXPECT_EQ(read_file(folder / "file"), golden());
}

TEST(SafetensorsTest, ReadsTheBytesOfTheReferenceImplementation) {
  const TemporaryFolder folder;
  write_file_atomic(folder / "file", golden());
  const Reader reader(folder / "file");
  ASSERT_EQ(reader.tensors().size(), 2);
  const TensorEntry& b = reader.tensors()[1];
  EXPECT_EQ(b.name, "b");
  EXPECT_EQ(b.dtype, Dtype::kI16);
  EXPECT_EQ(b.shape, (std::vector<std::int64_t>{2, 1}));
  std::array<std::int16_t, 2> values{};
  reader.read(b, std::as_writable_bytes(std::span(values)));
  EXPECT_EQ(values, (std::array<std::int16_t, 2>{1, -2}));
  EXPECT_EQ(reader.metadata(), (Metadata{{"format", "pt"}}));
}

TEST(SafetensorsTest, AFileCutShortWhileItIsReadIsAnError) {
  const TemporaryFolder folder;
  write_file_atomic(folder / "file", golden());
  const Reader reader(folder / "file");
  std::filesystem::resize_file(folder / "file", 20);
  std::array<std::byte, 4> bytes{};
  const Failure failure = failure_of([&] { reader.read(reader.tensors()[1], bytes); });
  EXPECT_EQ(failure.code, ExitCode::kCorrupt);
  EXPECT_NE(failure.message.find("while it is read"), std::string::npos);
}

TEST(SafetensorsTest, FilesTooShortForAHeaderAreRefused) {
  const TemporaryFolder folder;
  for (std::size_t size = 0; size < golden().size(); ++size) {
    write_file_atomic(folder / "file", golden().substr(0, size));
    EXPECT_EQ(failure_of([&] { const Reader reader(folder / "file"); }).code, ExitCode::kCorrupt);
  }
}

TEST(SafetensorsTest, ReadsFilesWithoutTensorsScalarsAndEmptyTensors) {
  EXPECT_TRUE(parse(file_of("{}", 0)).tensors.empty());
  const auto header = parse(file_of(R"({"s":{"dtype":"I64","shape":[],"data_offsets":[0,8]},)"
                                    R"("e":{"dtype":"F32","shape":[3,0],"data_offsets":[0,0]}} )",
                                    8));
  ASSERT_EQ(header.tensors.size(), 2);
  EXPECT_EQ(header.tensors[0].name, "e");
  EXPECT_TRUE(header.tensors[1].shape.empty());
}

TEST(SafetensorsTest, KnowsTypesThatNoTensorHereHas) {
  // As safetensors 0.8.0: bits of one number, and how many numbers are 8 bytes or 6.
  const auto taken = [](const std::string& dtype, int count, std::size_t bytes) {
    const auto header =
        parse(file_of(fmt::format(R"({{"t":{{"dtype":"{}","shape":[{}],"data_offsets":[0,{}]}}}})",
                                  dtype, count, bytes),
                      bytes));
    EXPECT_EQ(name_of(header.tensors.at(0).dtype), dtype);
  };
  for (const char* dtype : {"F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"}) {
    taken(dtype, 8, 8);
  }
  for (const char* dtype : {"F6_E2M3", "F6_E3M2"}) taken(dtype, 8, 6);
  taken("F4", 16, 8);
  taken("C64", 1, 8);
}

TEST(SafetensorsTest, NamesFileAndTensorOfWhatItRefuses) {
  EXPECT_EQ(
      problem(R"("dtype":"F32","shape":[3],"data_offsets":[0,8])"),
      "x.safetensors: tensor \"t\": data_offsets [0, 8] do not fit the 12 bytes of its shape");
}

TEST(SafetensorsTest, RefusesFieldsThatAreWrong) {
  const auto refused = [](const std::string& fields, const std::string& text) {
    EXPECT_NE(problem(fields).find(text), std::string::npos) << problem(fields);
  };
  refused(R"("dtype":"F31","shape":[2],"data_offsets":[0,8])", "dtype \"F31\" is unknown");
  refused(R"("dtype":4,"shape":[2],"data_offsets":[0,8])", "a number");
  refused(R"("dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8])", "occurs twice");
  refused(R"("dtype":"F32","shape":[2],"shape":[2],"data_offsets":[0,8])", "occurs twice");
  refused(R"("dtype":"F32","shape":[2])", "needs dtype, shape and two data_offsets");
  refused(R"("dtype":"F32","shape":[2],"data_offsets":[0])", "two data_offsets");
  refused(R"("dtype":"F32","shape":[2],"data_offsets":[0,8,8])", "too many numbers");
  refused(R"("dtype":"F32","shape":[-2],"data_offsets":[0,8])", "out of range");
  refused(R"("dtype":"F32","shape":[2.0],"data_offsets":[0,8])", "the number 2.0");
  refused(R"("dtype":"F32","shape":[-0],"data_offsets":[0,0])", "the number -0");
  refused(R"("dtype":"F32","shape":[2],"data_offsets":[-0,8])", "the number -0");
  refused(R"("dtype":"F4","shape":[15],"data_offsets":[0,8])", "60 bits of its shape do not fill");
  refused(R"("dtype":"F4","shape":[14],"data_offsets":[0,8])", "the 7 bytes of its shape");
  refused(R"("dtype":"F32","shape":[1e30],"data_offsets":[0,8])", "the number 1e30");
  refused(R"("dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,8])", "out of range");
  refused(R"("dtype":"F32","shape":[[2]],"data_offsets":[0,8])", "an array");
  refused(R"("dtype":"F32","shape":null,"data_offsets":[0,8])", "null");
  refused(R"("dtype":"F32","shape":[2],"data_offsets":[0,8],"x":true)", "field \"x\" is unknown");
  refused(R"("dtype":"F32","shape":[2],"data_offsets":[8,0])", "do not fit");
  refused(R"("dtype":"F32","shape":[2],"data_offsets":[8,16])", "leaves a hole");
  refused(R"("dtype":"F32","shape":[4],"data_offsets":[0,16])", "cut short");
  refused(R"("dtype":"F32","shape":[1],"data_offsets":[0,4])", "4 bytes follow");
}

TEST(SafetensorsTest, RefusesShapesWhoseProductOverflows) {
  const std::string huge = "4611686018427387904";  // 2^62
  for (const std::string& shape :
       {huge + ",4", huge + ",2", std::string("4294967296,4294967296"), "0," + huge + "," + huge}) {
    EXPECT_NE(problem(R"("dtype":"U8","shape":[)" + shape + R"(],"data_offsets":[0,8])")
                  .find("larger than any memory"),
              std::string::npos)
        << shape;
  }
}

TEST(SafetensorsTest, RefusesHeadersThatAreWrong) {
  const std::string tensor = R"({"dtype":"U8","shape":[4],"data_offsets":[0,4]})";
  const std::vector<std::pair<std::string, std::string>> cases{
      {"", "too few"},
      {std::string(7, 'x'), "too few"},
      {file_of("", 0), "does not start with"},
      {file_of(" {}", 0), "does not start with"},
      {file_of("{}", 0, 3), "header of 3 bytes"},
      {file_of("{}", 0, ~std::uint64_t{0}), "header of 18446744073709551615 bytes"},
      {file_of("{}", 0, std::uint64_t{1} << 63), "header of"},
      {file_of("{", 0), "not JSON"},
      {file_of("{}x", 0), "not JSON"},
      {file_of(std::string("{}\0x", 4), 0), "a NUL byte"},
      {file_of("{\"\xff\":0}", 0), "not JSON"},
      {file_of("{}", 1), "1 bytes follow"},
      {file_of(R"({"t":)" + tensor + R"(,"t":)" + tensor + "}", 4), "the key \"t\" occurs twice"},
      {file_of(R"({"t":)" + tensor + R"(,"u":)" + tensor + "}", 4), "\"u\": overlaps"},
      {file_of(R"({"t":)" + tensor + R"(,"u":)" + tensor + "}", 8), "\"u\": overlaps"},
      {file_of(R"({"__metadata__":{"a":1}})", 0), "a number"},
      {file_of(R"({"__metadata__":{"a":"1","a":"1"}})", 0), "key \"a\" occurs twice"},
      {file_of(R"({"__metadata__":{"a":{}}})", 0), "an object"},
      {file_of(R"({"t":"text"})", 0), "a string"},
      {file_of(R"({"t":)" + std::string(1'000'000, '['), 0), "an array"},
      {file_of(R"({"a\u001b[31m)" + std::string(200, 'b') + R"(":1})", 0), "\"a\\u001b[31mbb"},
  };
  for (const auto& [file, text] : cases) {
    const Failure failure = failure_of([&] { parse(file); });
    EXPECT_EQ(failure.code, ExitCode::kCorrupt) << text;
    EXPECT_NE(failure.message.find(text), std::string::npos) << failure.message;
    EXPECT_LT(failure.message.size(), 300);
  }
}

TEST(SafetensorsTest, RefusesEveryTruncation) {
  const std::string file = golden();
  for (std::size_t length = 0; length < file.size(); ++length) {
    EXPECT_EQ(failure_of([&] { parse(file.substr(0, length)); }).code, ExitCode::kCorrupt);
  }
}

TEST(SafetensorsTest, RandomMutationsAreReadInBoundsOrRefused) {
  const RandomStream random({.seed = 11}, 0);
  constexpr std::string_view kTokens = "\"{}[],:0129-eE. \\u\xff";
  for (std::uint32_t trial = 0; trial < 4000; ++trial) {
    std::string file = golden();
    const auto bits = random.block(trial);
    for (std::uint32_t change = 0; change <= bits[0] % 3; ++change) {
      const auto [place, what, token, unused] = random.block(trial, 1 + change);
      auto& byte = file[place % file.size()];
      byte = what % 2 == 0 ? kTokens[token % kTokens.size()]
                           : static_cast<char>(byte ^ (1 << token % 8));
    }
    const Failure failure = failure_of([&] {
      for (const TensorEntry& tensor : parse(file).tensors) {
        EXPECT_LE(tensor.end, 8);
        EXPECT_GE(tensor.begin, 0);
      }
    });
    EXPECT_TRUE(failure.code == ExitCode::kOk || failure.code == ExitCode::kCorrupt);
  }
}

TEST(SafetensorsTest, WritingRefusesEqualNamesAndWrongSizes) {
  const TemporaryFolder folder;
  const auto no_bytes = [](std::size_t) { return std::span<const std::byte>(); };
  FileWriter out(folder / "file");
  EXPECT_NE(failure_of([&] {
              write(out, {{"a", Dtype::kU8, {0}}, {"a", Dtype::kU8, {0}}}, {}, no_bytes);
            }).code,
            ExitCode::kOk);
  EXPECT_NE(failure_of([&] {
              write(out, {{"a", Dtype::kU8, {1}}}, {}, no_bytes);
            }).code,
            ExitCode::kOk);
}

}  // namespace
}  // namespace performer::safetensors
