#include "performer/data/path_list.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "performer/data/build.h"
#include "performer/data/dataset.h"
#include "performer/data/read_fasta.h"
#include "performer/data/recipe_paths.h"
#include "performer/data/sequence_dataset.h"
#include "performer/data/split_sources.h"
#include "tests/support/failure.h"
#include "tests/support/temporary_folder.h"

namespace performer::data {
namespace {

using performer::testing::failure_of;
using performer::testing::TemporaryFolder;

using Strings = std::vector<std::string>;

PathList list_of(const Strings& items) {
  PathList list;
  list.items = items;
  return list;
}

// Names of the files, without the folder.
Strings expanded(const TemporaryFolder& folder, const Strings& items,
                 const std::string& task = "protein") {
  Strings paths;
  for (const auto& item : items) paths.push_back(folder.file(item));
  Strings names;
  for (const auto& file : expand_paths(list_of(paths), task, "train")) {
    names.push_back(std::filesystem::path(file).filename().string());
  }
  return names;
}

TEST(Paths, FilesFoldersAndPatternsComeInTheirOrderAndSortedInside) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder.file("dir"));
  for (const char* name : {"dir/c.fa.gz", "dir/a.fasta", "dir/B.pds", "dir/notes.txt",
                           "dir/.hidden.fa", "x2.fa", "x10.fa", "z.fasta", "y[1].fa"}) {
    folder.write(name, ">a\nAC\n");
  }
  EXPECT_EQ(expanded(folder, {"z.fasta", "dir", "x*.fa"}),
            (Strings{"z.fasta", "B.pds", "a.fasta", "c.fa.gz", "x10.fa", "x2.fa"}));
  EXPECT_EQ(expanded(folder, {"dir/"}, "text"), Strings{"notes.txt"});
  EXPECT_EQ(expanded(folder, {"y[1].fa"}), Strings{"y[1].fa"}) << "a file's own name comes first";
  EXPECT_EQ(expanded(folder, {"x?.fa"}), Strings{"x2.fa"});
  EXPECT_EQ(expanded(folder, {"d*"}), (Strings{"B.pds", "a.fasta", "c.fa.gz"}));
  EXPECT_EQ(expand_paths(list_of({"-"}), "protein", "train"), Strings{"-"});
}

TEST(Paths, NothingFoundAndTheSameFileTwiceAreNamed) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder.file("dir"));
  folder.write("dir/a.txt", "x");
  const auto pattern = failure_of([&] { expanded(folder, {"x*.fa"}); });
  EXPECT_EQ(pattern.code, ExitCode::kBadInput);
  EXPECT_NE(pattern.message.find("data.train: no file matches"), std::string::npos);
  const auto empty = failure_of([&] { expanded(folder, {"dir"}); });
  EXPECT_EQ(empty.code, ExitCode::kBadInput);
  EXPECT_NE(empty.message.find("holds no file that ends in .fasta, .fa"), std::string::npos)
      << empty.message;
  const auto twice = failure_of([&] { expanded(folder, {"dir", "dir/./a.txt"}, "text"); });
  EXPECT_EQ(twice.code, ExitCode::kUsage);
  EXPECT_NE(twice.message.find("comes twice"), std::string::npos);
}

TEST(Paths, AnEmptyOneIsNoneAndAnEmptyNameInAListIsRefused) {
  EXPECT_TRUE(PathList("").empty());
  const auto failure = failure_of([&] { expand_paths(list_of({"a", ""}), "protein", "train"); });
  EXPECT_EQ(failure.code, ExitCode::kUsage);
  EXPECT_NE(failure.message.find("data.train: an empty name"), std::string::npos);
  EXPECT_EQ(PathList("a"), list_of({"a"}));
}

std::string letters_of(const SequenceSource& source) {
  std::string text;
  for (std::int64_t i = 0; i < source.size(); ++i) {
    const auto tokens = source.tokens(i);
    text += protein_space().decode(std::vector<std::int64_t>(tokens.begin(), tokens.end())) + " ";
  }
  return text;
}

TEST(SeveralFiles, OfProteinsAreOneSet) {
  const TemporaryFolder folder;
  folder.write("a.fasta", ">a\nAC\n>b\nDE\n");
  folder.write("b.fasta", ">c\nFG\n>d\nAC\n");
  build_pds(folder.write("other", ">e\nHI\n>f\nKL\n"), folder.file("c.pds"), {});
  DataConfig config;
  config.train = list_of({folder.file("c.pds"), folder.file("*.fasta")});
  const auto data = open_dataset(config, Split::kTrain);
  EXPECT_EQ(data->size(), 6);
  EXPECT_EQ(letters_of(dynamic_cast<const SequenceDataset&>(*data).source()), "HI KL AC DE FG AC ");
  config.train = folder.file("*.fasta");
  config.deduplicate = true;
  EXPECT_EQ(open_dataset(config, Split::kTrain)->size(), 3) << "equal ones in two files";
  const Strings files = {folder.file("a.fasta"), folder.file("b.fasta")};
  EXPECT_NE(failure_of([&] {
              read_fasta(files, {.keep = {}, .max_residues = 7});
            }).message.find("more than 7 residues"),
            std::string::npos)
      << "the bound is that of all";
}

TEST(SeveralFiles, OfTextAreSeparatedByAnEnd) {
  const TemporaryFolder folder;
  folder.write("1.txt", "one two");
  folder.write("2.txt", "three");
  DataConfig config;
  config.task = "text";
  config.length = 100;
  config.train = folder.file("*.txt");
  const auto data = open_dataset(config, Split::kTrain);
  std::vector<std::int64_t> tokens(100), targets(100);
  const auto info = data->fill({0, 0, 0, Use::kEvaluation}, {tokens, targets, {}});
  EXPECT_EQ(info.length, 1 + 7 + 1 + 5);
  EXPECT_EQ(targets[7], data->space().eos);
  EXPECT_EQ(targets[13], data->space().eos);
  EXPECT_DOUBLE_EQ(data->word_multiplier(), 12.0 / 3.0);
}

TEST(SeveralFiles, OfTablesNameTheirOwnColumns) {
  const TemporaryFolder folder;
  folder.write("1.tsv", "text\tlabel\nx\ta\n");
  folder.write("2.tsv", "label\ttext\nb\ty\nb\tz\n");
  DataConfig config;
  config.task = "classify";
  config.train = folder.file("");
  EXPECT_EQ(make_token_space(config).classes, (Strings{"a", "b"}));
  EXPECT_EQ(open_dataset(config, Split::kTrain)->size(), 3);
}

TEST(SeveralFiles, OfImagesHaveOneSize) {
  const TemporaryFolder folder;
  const std::string head("\0\0\x08\x03\0\0\0\x01\0\0\0\x01\0\0\0\x02", 16);
  folder.write("1.idx", head + "ab");
  folder.write("2.idx", head + "cd");
  DataConfig config;
  config.task = "pixels";
  config.train = folder.file("*.idx");
  EXPECT_EQ(open_dataset(config, Split::kTrain)->size(), 2);
  folder.write("3.idx", std::string("\0\0\x08\x03\0\0\0\x01\0\0\0\x02\0\0\0\x01xy", 18));
  EXPECT_NE(failure_of([&] { make_token_space(config); }).message.find("3.idx: 2 x 1 x 1"),
            std::string::npos);
}

class RecipePaths : public ::testing::Test {
 protected:
  RecipePaths() : before_(std::filesystem::current_path()) {
    std::filesystem::create_directory(folder_.file("recipes"));
    std::filesystem::current_path(folder_.file(""));
  }
  ~RecipePaths() override { std::filesystem::current_path(before_); }

  // The log, after looking for data.train.
  std::string look(DataConfig& config, bool given = false) const {
    ::testing::internal::CaptureStderr();
    look_beside_recipe(config, [&](std::string_view) { return given ? "" : "recipes/r.toml"; });
    return ::testing::internal::GetCapturedStderr();
  }

  TemporaryFolder folder_;

 private:
  std::filesystem::path before_;
};

TEST_F(RecipePaths, AreLookedForBesideTheRecipeFirst) {
  folder_.write("recipes/a.fasta", ">a\nAC\n");
  DataConfig config;
  config.train = "a.fasta";
  config.tokenizer = "bytes";
  EXPECT_EQ(look(config), "data.train: recipes/a.fasta is read, beside the recipe\n");
  EXPECT_EQ(config.train, "recipes/a.fasta");
  folder_.write("a.fasta", ">b\nDE\n");
  config.train = "a.fasta";
  EXPECT_NE(look(config).find("a.fasta in the working folder is not"), std::string::npos);
  EXPECT_EQ(config.train, "recipes/a.fasta");
  config.train = "*.fasta";
  look(config);
  EXPECT_EQ(config.train, "recipes/*.fasta");
}

TEST_F(RecipePaths, ThatAreNotUtf8AreRefused) {
  DataConfig config;
  config.valid = "caf\xE9.fasta";
  const auto failure = failure_of([&] { look(config); });
  ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(failure.code, ExitCode::kUsage);
  EXPECT_NE(failure.message.find("is not UTF-8"), std::string::npos);
}

TEST_F(RecipePaths, AreThoseOfTheWorkingFolderElsewhereAndOnTheCommandLine) {
  folder_.write("a.fasta", ">b\nDE\n");
  DataConfig config;
  config.train = list_of({"a.fasta", "-", folder_.file("absolute")});
  EXPECT_EQ(look(config), "");
  EXPECT_EQ(config.train.items[0], "a.fasta");
  folder_.write("recipes/a.fasta", ">a\nAC\n");
  EXPECT_EQ(look(config, /*given=*/true), "");
  EXPECT_EQ(config.train.items[0], "a.fasta");
}

}  // namespace
}  // namespace performer::data
