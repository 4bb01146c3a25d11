#include "performer/data/dataset.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <png.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "performer/data/alphabet.h"
#include "performer/data/batch_stream.h"
#include "performer/data/build.h"
#include "performer/data/read_fasta.h"
#include "performer/data/split_fasta.h"
#include "performer/data/statistics.h"
#include "performer/data/text.h"
#include "performer/data/train_tokenizer.h"
#include "tests/support/failure.h"
#include "tests/support/gzip_file.h"
#include "tests/support/temporary_folder.h"

namespace performer::data {
namespace {

using performer::testing::failure_of;
using performer::testing::TemporaryFolder;
using performer::testing::write_gzip;

Batch evaluation_batch(const DataConfig& config, Split split, std::int64_t rows = 100) {
  const BatchStream stream(open_dataset(config, split), Use::kEvaluation);
  return stream.batch(0, rows);
}

std::vector<std::int64_t> row_of(const at::Tensor& tensor, std::int64_t row) {
  const auto line = tensor[row].contiguous();
  const auto* data = line.const_data_ptr<std::int64_t>();
  return {data, data + line.numel()};
}

TEST(Joined, BlocksHoldEverySequenceOnceBetweenEnds) {
  const TemporaryFolder folder;
  std::string fasta;
  for (int i = 0; i < 200; ++i) {
    fasta += fmt::format(">s\n{}\n",
                         std::string(static_cast<std::size_t>(1 + i % 37), "ACDEFGHIKL"[i % 10]));
  }
  DataConfig config;
  config.train = folder.write("a.fasta", fasta);
  config.join = true;
  config.length = 50;
  const auto data = open_dataset(config, Split::kTrain);
  const BatchStream stream({open_dataset(config, Split::kTrain)}, Use::kEvaluation);
  std::string text;
  std::int64_t targets = 0;
  for (std::int64_t b = 0; b < stream.size(); ++b) {
    const Batch batch = stream.batch(b, 1);
    targets += batch.num_targets;
    for (std::int64_t i = 0; i < batch.num_tokens; ++i) {
      const std::int64_t token = batch.tokens[0][i].item<std::int64_t>();
      text += token == alphabet::kEos ? "|" : alphabet::name_of(token);
    }
    if (b + 1 < stream.size()) {
      EXPECT_EQ(batch.targets[0][49].item<std::int64_t>(),
                stream.batch(b + 1, 1).tokens[0][0].item<std::int64_t>());
    }
  }
  EXPECT_EQ(targets, std::ssize(text)) << "every token but the first is a target";
  EXPECT_EQ(text[0], '|');
  std::map<std::string, int> seen, expected;
  for (std::size_t at = 1; at < text.size();) {
    const std::size_t end = std::min(text.find('|', at), text.size());
    ++seen[text.substr(at, end - at)];
    at = end + 1;
  }
  for (int i = 0; i < 200; ++i) {
    ++expected[std::string(static_cast<std::size_t>(1 + i % 37), "ACDEFGHIKL"[i % 10])];
  }
  EXPECT_EQ(seen, expected);
}

TEST(Proteins, BuiltAndPlainFilesGiveTheSameBatches) {
  const TemporaryFolder folder;
  DataConfig plain, built;
  const auto fasta = folder.write("a.fasta", ">a\nACDEFGHIKLMN\n>b\nPQR\n>c\nSTVWYXBUZO\n");
  build_pds(fasta, folder.file("a.pds"), {});
  plain.train = fasta;
  built.train = folder.file("a.pds");
  plain.length = built.length = 8;
  for (const std::string objective : {"causal", "masked"}) {
    plain.objective = built.objective = objective;
    const BatchStream a(open_dataset(plain, Split::kTrain), Use::kTraining);
    const BatchStream b(open_dataset(built, Split::kTrain), Use::kTraining);
    for (std::int64_t p = 0; p < 20; ++p) {
      EXPECT_TRUE(a.batch(p, 2).tokens.equal(b.batch(p, 2).tokens));
      EXPECT_TRUE(a.batch(p, 2).targets.equal(b.batch(p, 2).targets));
    }
  }
}

TEST(Proteins, SplitsComeFromOneFileAndATable) {
  const TemporaryFolder folder;
  DataConfig config;
  config.train = folder.write("a.fasta", ">a x\nAC\n>b\nDE\n>c\nFG\n>d\nHI\n");
  config.split_table = folder.write("t.tsv", "id\tsplit\nb\tvalid\na\ttrain\nd\ttrain\n");
  EXPECT_EQ(open_dataset(config, Split::kTrain)->size(), 2);
  EXPECT_EQ(open_dataset(config, Split::kValid)->size(), 1);
  EXPECT_TRUE(has_split(config, Split::kValid));
  EXPECT_FALSE(has_split(config, Split::kOod));
  EXPECT_EQ(failure_of([&] { open_dataset(config, Split::kTest); }).code, ExitCode::kBadInput);
}

TEST(Text, BytesAreCutIntoBlocksWithNothingLost) {
  const TemporaryFolder folder;
  DataConfig config;
  config.task = "text";
  config.length = 8;
  const std::string text = "Two words\nand more.";
  config.train = write_gzip(folder, "a.txt.gz", text);
  const auto data = open_dataset(config, Split::kTrain);
  EXPECT_DOUBLE_EQ(data->word_multiplier(), 19.0 / 4.0);
  const Batch batch = evaluation_batch(config, Split::kTrain);
  std::string seen;
  for (std::int64_t r = 0; r < batch.targets.size(0); ++r) {
    seen += data->space().decode(row_of(batch.targets, r));
  }
  EXPECT_EQ(seen, text);
  EXPECT_EQ(batch.num_targets, 20);  // and EOS
}

TEST(Text, ATrainedTokenizerGivesTheTextBack) {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 400; ++i) {
    text += fmt::format("The  cat number {} sat on the mat,\n\tand Emma — é — looked.\n", i * i);
  }
  const auto path = folder.write("a.txt", text);
  const auto result = train_tokenizer({path}, folder.file("a.model"), {.vocabulary = 296});
  EXPECT_EQ(result.words, 400 * 14);
  DataConfig config;
  config.task = "text";
  config.train = path;
  config.tokenizer = folder.file("a.model");
  const TokenSpace space = make_token_space(config);
  EXPECT_EQ(space.vocabulary, 296);
  EXPECT_EQ(space.pad, 0);
  EXPECT_EQ(space.mask, 4);
  const std::string sample = text.substr(0, 300) + " \xE2\x82\xAC unseen  ";
  EXPECT_EQ(space.decode(space.encode(sample)), sample);
  const auto data = open_dataset(config, Split::kTrain, space);
  EXPECT_NEAR(data->word_multiplier(), static_cast<double>(result.tokens) / 5600.0, 1e-9);
  const TokenSpace again = TokenSpace::from_json(space.to_json(), space.model_bytes());
  EXPECT_EQ(again.encode(sample), space.encode(sample));
  EXPECT_EQ(failure_of([&] { TokenSpace::from_json(space.to_json(), "junk"); }).code,
            ExitCode::kBadInput);
}

TEST(Pixels, AreReadInRasterOrderAfterBos) {
  const TemporaryFolder folder;
  const std::string header("\0\0\x08\x04\0\0\0\x02\0\0\0\x02\0\0\0\x01\0\0\0\x03", 20);
  DataConfig config;
  config.task = "pixels";
  config.pad_multiple = 1;
  config.train = write_gzip(folder, "a.idx", header + "abcdefABCDE\xff");
  const Batch batch = evaluation_batch(config, Split::kTrain);
  EXPECT_EQ(row_of(batch.tokens, 0), (std::vector<std::int64_t>{256, 'a', 'b', 'c', 'd', 'e'}));
  EXPECT_EQ(row_of(batch.targets, 1), (std::vector<std::int64_t>{'A', 'B', 'C', 'D', 'E', 255}));
  EXPECT_EQ(batch.num_targets, 12);
  EXPECT_EQ(make_token_space(config).shape, (std::vector<std::int64_t>{2, 1, 3}));
  config.train = folder.write("cut.idx", header + "abc");
  EXPECT_NE(failure_of([&] { make_token_space(config); }).message.find("its header says 12"),
            std::string::npos);
}

TEST(Pixels, FoldersOfPngAndPpmAreReadByName) {
  const TemporaryFolder folder;
  folder.write("b.ppm", "P6 # made by hand\n2 1\n255\nUVWXYZ");
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = 2;
  image.height = 1;
  image.format = PNG_FORMAT_RGB;
  ASSERT_NE(png_image_write_to_file(&image, folder.file("a.png").c_str(), 0, "abcdef", 0, nullptr),
            0);
  DataConfig config;
  config.task = "pixels";
  config.train = folder.file("");
  const Batch batch = evaluation_batch(config, Split::kTrain);
  EXPECT_EQ(make_token_space(config).decode(row_of(batch.targets, 0)), "97 98 99 100 101 102");
  EXPECT_EQ(make_token_space(config).decode(row_of(batch.targets, 1)), "85 86 87 88 89 90");
  folder.write("c.pgm", "P5 1 1 255\nx");
  EXPECT_NE(failure_of([&] { make_token_space(config); }).message.find("c.pgm: 1 x 1 x 1"),
            std::string::npos);
}

TEST(Labelled, ClassesAreSortedAndTextIsUnescaped) {
  const TemporaryFolder folder;
  DataConfig config;
  config.task = "classify";
  config.length = 8;
  config.train = folder.write("a.tsv",
                              "split\ttext\tlabel\n"
                              "train\ta\\nb\\\\c\tnet\n"
                              "train\tlonger than a row\tgames\n"
                              "test\tx\tnet\n"
                              "valid\ty\tnew\n");
  const TokenSpace space = make_token_space(config);
  EXPECT_EQ(space.classes, (std::vector<std::string>{"games", "net"}));
  const Batch batch = evaluation_batch(config, Split::kTrain);
  EXPECT_EQ(row_of(batch.targets.unsqueeze(0), 0), (std::vector<std::int64_t>{1, 0}));
  EXPECT_EQ(space.decode(row_of(batch.tokens, 0)), "a\nb\\c");
  EXPECT_EQ(space.decode(row_of(batch.tokens, 1)), "longer ");
  EXPECT_EQ(batch.key_mask.sum().item<std::int64_t>(), 6 + 8);
  EXPECT_EQ(open_dataset(config, Split::kTest)->size(), 1);
  EXPECT_FALSE(has_split(config, Split::kOod));
  EXPECT_NE(failure_of([&] {
              open_dataset(config, Split::kValid);
            }).message.find(":5: class \"new\" does not occur"),
            std::string::npos);
}

TEST(Labelled, PairsAreFoundByDocumentId) {
  const TemporaryFolder folder;
  DataConfig config;
  config.task = "match";
  config.label_column = "cites";
  config.documents = folder.write("d.tsv", "id\ttext\n7\tseven\n8\teight!\n");
  config.train = folder.write("p.tsv", "split\tcites\ta\tb\ntrain\t1\t7\t8\ntrain\t0\t8\t7\n");
  const TokenSpace space = make_token_space(config);
  const Batch batch = evaluation_batch(config, Split::kTrain);
  EXPECT_EQ(space.decode(row_of(batch.tokens, 0)), "seven");
  EXPECT_EQ(space.decode(row_of(batch.tokens_b, 0)), "eight!");
  EXPECT_EQ(row_of(batch.targets.unsqueeze(0), 0), (std::vector<std::int64_t>{1, 0}));
  EXPECT_EQ(batch.num_targets, 2);
  config.train = folder.write("q.tsv", "split\tcites\ta\tb\ntrain\t1\t7\t8\ntrain\t0\t9\t7\n");
  EXPECT_NE(failure_of([&] { open_dataset(config, Split::kTrain); }).message.find("document \"9\""),
            std::string::npos);
}

TEST(TokenSpace, ShowsTheLetterThatIsNoAminoAcidHarmless) {
  EXPECT_EQ(failure_of([] {
              protein_space().encode("MK\x1b[2J");
            }).message.find("sequence: \"\\u001b\" is no"),
            0U);
  EXPECT_EQ(failure_of([] {
              protein_space().encode("MK\xc3\xa9");
            }).message.find("sequence: \"\\u00e9\" is no"),
            0U);
}

TEST(TokenSpaceJson, RoundTripsAndRefusesNonsense) {
  const TokenSpace space = protein_space();
  const TokenSpace again = TokenSpace::from_json(space.to_json());
  EXPECT_EQ(again.to_json(), space.to_json());
  EXPECT_EQ(again.decode(again.encode("acd-EFJ")), "ACDEFX");
  for (const char* key : {"pad", "vocabulary", "regular", "first_regular", "start"}) {
    auto json = space.to_json();
    json[key] = 1'000'000'000'000;
    EXPECT_EQ(failure_of([&] { TokenSpace::from_json(json); }).code, ExitCode::kCorrupt) << key;
    json[key] = "x";
    EXPECT_EQ(failure_of([&] { TokenSpace::from_json(json); }).code, ExitCode::kCorrupt) << key;
  }
}

TEST(Statistics, AreThoseOfTheDefinition) {
  SequenceStatistics statistics(alphabet::kVocabulary);
  for (const std::size_t n : {1U, 2U, 4U, 9U}) {
    statistics.add(std::vector<std::uint8_t>(n, static_cast<std::uint8_t>(3 + n)));
  }
  const auto s = statistics.lengths();
  EXPECT_EQ(s.count, 4);
  EXPECT_EQ(s.total, 16);
  EXPECT_EQ(s.min, 1);
  EXPECT_EQ(s.max, 9);
  EXPECT_DOUBLE_EQ(s.mean, 4);
  EXPECT_DOUBLE_EQ(s.std, std::sqrt(38.0 / 4.0));
  EXPECT_DOUBLE_EQ(s.median, 3);
  EXPECT_EQ(statistics.counts()[12], 9);
}

TEST(Baselines, GuessTheMostFrequentAndKeepUnseenTokensFinite) {
  const std::vector<std::int64_t> train = {6, 2, 0}, held = {1, 2, 1};
  const Baseline b = empirical_baseline(train, held);
  EXPECT_DOUBLE_EQ(b.accuracy, 0.25);
  EXPECT_NEAR(b.perplexity, std::exp(-(std::log(0.75) + 2 * std::log(0.25) + std::log(0.125)) / 4),
              1e-12);
  EXPECT_DOUBLE_EQ(uniform_baseline(25).accuracy, 0.04);
}

TEST(Baselines, HaveOneDefinitionWithTheEndsApartOrCounted) {
  const TokenSpace space = protein_space();
  std::vector<std::int64_t> train(static_cast<std::size_t>(space.vocabulary)), held = train;
  train[alphabet::kFirstLetter] = 3;
  train[alphabet::kFirstLetter + 1] = 1;
  train[alphabet::kEos] = 100;
  held[alphabet::kFirstLetter] = 1;
  held[alphabet::kEos] = 1;
  const Baselines apart = baselines_of(space, Ends::kApart, train, held);
  EXPECT_DOUBLE_EQ(apart.uniform.perplexity, 25);
  EXPECT_EQ(apart.targets, 1);
  EXPECT_DOUBLE_EQ(apart.empirical.accuracy, 1);
  EXPECT_NEAR(apart.empirical.perplexity, 4.0 / 3.0, 1e-12);
  const Baselines counted = baselines_of(space, Ends::kCounted, train, held);
  EXPECT_DOUBLE_EQ(counted.uniform.perplexity, 26);
  EXPECT_EQ(counted.targets, 2);
  EXPECT_DOUBLE_EQ(counted.empirical.accuracy, 0.5);
  EXPECT_NEAR(counted.empirical.perplexity, std::sqrt(104.0 / 3.0 * 1.04), 1e-12);
  TokenSpace classes = byte_space();
  classes.classes = {"a", "b", "c"};
  const std::vector<std::int64_t> labels = {1, 2, 3};
  EXPECT_EQ(baselines_of(classes, Ends::kCounted, labels, labels).choices, 3);
}

TEST(Split, HoldsFamiliesOutAndSplitsTheRestByContent) {
  const TemporaryFolder folder;
  std::string fasta, table = "id\tfamily\n";
  for (int i = 0; i < 2000; ++i) {
    fasta += fmt::format(">p{}\n", i);
    for (int k = i + 1; k > 0; k /= 3) fasta += "ACD"[k % 3];
    fasta += "WY\n";
    if (i % 50 == 0) table += fmt::format("p{}\tPF1;PF03938\n", i);
  }
  const auto input = folder.write("a.fasta", fasta);
  SplitOptions options;
  options.families = folder.write("f.tsv", table);
  options.valid = 0.1;
  options.test = 0.2;
  const auto result = split_fasta(input, folder.file("out"), options);
  ASSERT_EQ(result.parts.size(), 4U);
  std::int64_t all = 0;
  for (const auto& part : result.parts) {
    all += part.lengths.count;
    EXPECT_EQ(read_fasta(part.path).sequences->size(), part.lengths.count);
  }
  EXPECT_EQ(all, 2000);
  EXPECT_EQ(result.parts[3].lengths.count, 40);
  EXPECT_NEAR(static_cast<double>(result.parts[1].lengths.count), 196, 45);
  EXPECT_NEAR(static_cast<double>(result.parts[2].lengths.count), 392, 60);
  SplitOptions none = options;
  none.held_out = {"PF999"};
  EXPECT_EQ(failure_of([&] { split_fasta(input, folder.file("no"), none); }).code,
            ExitCode::kBadInput);
}

}  // namespace
}  // namespace performer::data
