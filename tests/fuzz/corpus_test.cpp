#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "performer/core/file.h"
#include "tests/fuzz/targets.h"

/// The fuzz targets over their corpora, without a fuzzer: what it found once stays mended.
namespace performer::fuzz {
namespace {

namespace fs = std::filesystem;

struct Target {
  const char* name;
  int (*run)(Bytes);
};

// What seeds.py writes, and how many of the format's readers take it.
struct Seed {
  const char* target;
  const char* name;
  int taken;
};

constexpr Seed kSeeds[] = {
    {"fasta", "plain", 1},      {"fasta", "gzip", 1},
    {"fasta", "blank", 1},      {"fasta", "bzip2", 0},
    {"fasta", "bzip2_cut", 0},  {"hf", "word_piece", 1},
    {"hf", "byte_level", 1},    {"hf", "byte_fallback", 1},
    {"hf", "metaspace", 1},     {"hf", "bert", 1},
    {"hf", "esm", 1},           {"hf", "gpt2", 1},
    {"hf", "unigram", 0},       {"json", "manifest", 2},
    {"json", "latest", 1},      {"json", "other", 1},
    {"pds", "three", 2},        {"pds", "one", 2},
    {"pds", "newer", 0},        {"png", "gray", 1},
    {"png", "color", 1},        {"png", "alpha", 1},
    {"png", "deep", 1},         {"png", "bits", 1},
    {"png", "interlaced", 1},   {"png", "palette", 1},
    {"png", "pnm", 1},          {"pretrained", "bert", 1},
    {"pretrained", "esm", 1},   {"pretrained", "gpt2", 1},
    {"pretrained", "llama", 1}, {"pretrained", "qwen2", 1},
    {"pretrained", "index", 1}, {"pretrained", "escaping", 0},
    {"safetensors", "two", 1},  {"safetensors", "metadata", 1},
    {"safetensors", "bare", 1}, {"toml", "recipe", 1},
    {"toml", "dotted", 2},      {"toml", "nested", 0},
    {"toml", "unknown", 0},     {"tsv", "plain", 1},
    {"tsv", "gzip", 1},         {"tsv", "narrow", 1},
};

constexpr Target kTargets[] = {
    {"fasta", fasta},
    {"hf", hf},
    {"json", json},
    {"pds", pds},
    {"png", png},
    {"pretrained", pretrained},
    {"safetensors", safetensors},
    {"toml", toml},
    {"tsv", tsv},
};

class CorpusTest : public ::testing::TestWithParam<Target> {
 protected:
  static std::vector<fs::path> files() {
    std::vector<fs::path> paths;
    for (const auto& entry : fs::directory_iterator(fs::path(PERFORMER_CORPUS) / GetParam().name)) {
      paths.push_back(entry.path());
    }
    std::sort(paths.begin(), paths.end());
    return paths;
  }

  static void expect_no_finding(const std::string& text) {
    EXPECT_NO_THROW(GetParam().run(std::as_bytes(std::span(text))));
  }
};

TEST_P(CorpusTest, EveryFileIsReadOrRefusedByName) {
  const auto paths = files();
  EXPECT_GE(paths.size(), 2);
  for (const fs::path& path : paths) {
    SCOPED_TRACE(path.filename());
    expect_no_finding(read_file(path));
  }
}

TEST_P(CorpusTest, GoodFilesAreTaken) {
  for (const Seed& seed : kSeeds) {
    if (std::string_view(seed.target) != GetParam().name) continue;
    const std::string text = read_file(fs::path(PERFORMER_CORPUS) / seed.target / seed.name);
    EXPECT_EQ(GetParam().run(std::as_bytes(std::span(text))), seed.taken) << seed.name;
  }
}

TEST_P(CorpusTest, SoIsEveryFileCutShort) {
  constexpr std::size_t kCuts = 64;
  for (const fs::path& path : files()) {
    const std::string text = read_file(path);
    for (std::size_t i = 0; i < kCuts; ++i) {
      SCOPED_TRACE(testing::Message() << path.filename() << " cut at part " << i);
      expect_no_finding(text.substr(0, text.size() * i / kCuts));
    }
  }
}

TEST_P(CorpusTest, SoIsEveryFileWithABitTurned) {
  constexpr std::size_t kPlaces = 256;
  for (const fs::path& path : files()) {
    const std::string text = read_file(path);
    const std::size_t step = std::max<std::size_t>(1, text.size() / kPlaces);
    for (std::size_t at = 0; at < text.size(); at += step) {
      SCOPED_TRACE(testing::Message() << path.filename() << " bit " << at % 8 << " of byte " << at);
      std::string turned = text;
      turned[at] = static_cast<char>(turned[at] ^ (1 << (at % 8)));
      expect_no_finding(turned);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, CorpusTest, ::testing::ValuesIn(kTargets),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace performer::fuzz
