#include "performer/data/fasta.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "performer/core/file.h"
#include "performer/data/read_fasta.h"
#include "performer/data/token_space.h"
#include "tests/support/failure.h"
#include "tests/support/gzip_file.h"
#include "tests/support/temporary_folder.h"

namespace performer::data {
namespace {

using performer::testing::failure_of;
using performer::testing::TemporaryFolder;
using performer::testing::write_gzip;

struct Parsed {
  std::vector<std::string> ids, sequences;
  FastaCounts counts;
};

Parsed parse(const std::string& path) {
  ByteSource source(path);
  FastaReader reader(source);
  FastaRecord record;
  Parsed parsed;
  const TokenSpace space = protein_space();
  while (reader.next(record)) {
    parsed.ids.push_back(record.id());
    const std::vector<std::int64_t> tokens(record.tokens.begin(), record.tokens.end());
    parsed.sequences.push_back(space.decode(tokens));
  }
  parsed.counts = reader.counts();
  return parsed;
}

Parsed parse_text(const std::string& text) {
  const TemporaryFolder folder;
  return parse(folder.write("a.fasta", text));
}

using Strings = std::vector<std::string>;

TEST(Fasta, ReadsEveryLetterOfTheAlphabetInAnyCase) {
  const auto parsed =
      parse_text(">p some words\nACDEFGHIKLMNPQRSTVWYXBUZO\nacdefghiklmnpqrstvwyxbuzo\n");
  const std::string letters = "ACDEFGHIKLMNPQRSTVWYXBUZO";
  EXPECT_EQ(parsed.ids, Strings{"p"});
  EXPECT_EQ(parsed.sequences, Strings{letters + letters});
}

TEST(Fasta, TakesCarriageReturnsGapsBlanksAndAMissingLastLineEnd) {
  const auto parsed = parse_text(">a x\r\nAC-D\r\n\r\nE.F \r\n>b\r\nGG\tH");
  EXPECT_EQ(parsed.ids, (Strings{"a", "b"}));
  EXPECT_EQ(parsed.sequences, (Strings{"ACDEF", "GGH"}));
  EXPECT_EQ(parsed.counts.gaps, 2);
  EXPECT_EQ(parsed.counts.residues, 8);
}

TEST(Fasta, DropsStopsAtTheEndAndWritesXForThoseInside) {
  const auto parsed = parse_text(">a\nAC*\n*\n>b\nA*C\n*\nD*\n>c\nAJ\n");
  EXPECT_EQ(parsed.sequences, (Strings{"AC", "AXCXD", "AX"}));
  EXPECT_EQ(parsed.counts.end_stops, 3);
  EXPECT_EQ(parsed.counts.inner_stops, 2);
  EXPECT_EQ(parsed.counts.unknown, 1);
}

TEST(Fasta, SkipsAndCountsRecordsWithoutResidues) {
  const auto parsed = parse_text(">a\n>b\n\n>c\nAA\n>d\n*-\n>e");
  EXPECT_EQ(parsed.ids, Strings{"c"});
  EXPECT_EQ(parsed.counts.blank, 4);
  EXPECT_EQ(parsed.counts.records, 1);
}

TEST(Fasta, ReadsGzipByContentAndJoinedMembers) {
  const TemporaryFolder folder;
  write_gzip(folder, "one", ">a\nACD\n");
  write_gzip(folder, "two", ">b\nEFG\n");
  const auto path =
      folder.write("no_suffix", read_file(folder.file("one")) + read_file(folder.file("two")));
  EXPECT_EQ(parse(path).sequences, (Strings{"ACD", "EFG"}));
}

TEST(Fasta, ReadsOneLineOfFiftyMegabytes) {
  const TemporaryFolder folder;
  std::string text(50'000'003, 'K');
  text.replace(0, 3, ">a\n").append("\n>b\nAC");
  const auto parsed = parse(folder.write("a", text));
  ASSERT_EQ(parsed.sequences.size(), 2U);
  EXPECT_EQ(parsed.sequences[0].size(), 50'000'000U);
  EXPECT_EQ(parsed.sequences[1], "AC");
}

// The pieces' borders fall at every place of the file: results must not depend on them.
TEST(Fasta, DoesNotDependOnWherePiecesEnd) {
  const std::string record = ">id words\r\nAC-DE\r\nFG*H\r\n";
  for (std::size_t lead = 0; lead < record.size(); ++lead) {
    std::string text((1 << 18) - 1 - lead, 'h');
    text.front() = '>';
    text.append("\n").append(record).append(record);
    EXPECT_EQ(parse_text(text).sequences, (Strings{"ACDEFGXH", "ACDEFGXH"})) << lead;
  }
}

TEST(Fasta, NamesLineAndColumnOfAForeignLetter) {
  const TemporaryFolder folder;
  const auto path = folder.write("a.fasta", ">a\nACD\nAC-D1E\n");
  const auto failure = failure_of([&] { parse(path); });
  EXPECT_EQ(failure.code, ExitCode::kBadInput);
  EXPECT_EQ(failure.message.rfind(path + ":3:5: '1' is not an amino acid", 0), 0U)
      << failure.message;
}

TEST(Fasta, NamesByteAndOffsetOfABinaryFile) {
  const TemporaryFolder folder;
  const auto head = folder.write("head.fasta", std::string("\x7f"
                                                           "ELF\0\1",
                                                           6));
  EXPECT_EQ(failure_of([&] { parse(head); }).message,
            head + ": byte 0x7f at offset 0 is no text; is this a FASTA file?");
  const auto inside = folder.write("inside.fasta", std::string(">a\nAC\0DE\n", 9));
  const auto failure = failure_of([&] { parse(inside); });
  EXPECT_EQ(failure.code, ExitCode::kBadInput);
  EXPECT_EQ(failure.message, inside + ": byte 0x00 at offset 5 is no text; is this a FASTA file?");
}

TEST(Fasta, RefusesTextBeforeTheFirstRecord) {
  const TemporaryFolder folder;
  const auto path = folder.write("a.fasta", "\nACD\n>a\nAC\n");
  EXPECT_EQ(failure_of([&] { parse(path); }).message,
            path + ":2:1: text before the first '>'; is this a FASTA file?");
}

TEST(Fasta, DetectsTruncatedAndDamagedGzip) {
  const TemporaryFolder folder;
  std::string text = ">a\n";
  for (int i = 0; i < 20'000; ++i) text += "ACDEFGHIKLMNPQRSTVWY"[(i * i) % 19];
  write_gzip(folder, "whole", text);
  std::string bytes = read_file(folder.file("whole"));
  for (std::size_t keep = 2; keep < bytes.size(); keep += bytes.size() / 50 + 1) {
    const auto path = folder.write("cut", bytes.substr(0, keep));
    const auto failure = failure_of([&] { parse(path); });
    EXPECT_EQ(failure.code, ExitCode::kBadInput) << keep;
    EXPECT_NE(failure.message.find("cut short"), std::string::npos) << failure.message;
  }
  bytes[bytes.size() - 6] ^= 1;  // the checksum
  const auto path = folder.write("damaged", bytes);
  EXPECT_NE(failure_of([&] { parse(path); }).message.find("damaged gzip"), std::string::npos);
}

TEST(ReadFasta, CountsDuplicatesAndDropsEqualSequencesWhereAsked) {
  const TemporaryFolder folder;
  const auto path = folder.write("a.fasta", ">a\nAC\n>b\nac\n>a\nAD\n");
  const auto all = read_fasta(path);
  EXPECT_EQ(all.sequences->size(), 3);
  EXPECT_EQ(all.counts.duplicate_ids, 1);
  const auto unique = read_fasta(path, {.deduplicate = true, .keep = {}});
  EXPECT_EQ(unique.sequences->size(), 2);
  EXPECT_EQ(unique.counts.duplicates, 1);
}

TEST(ReadFasta, SaysSoWhereThereIsNoSequenceOrTooMuch) {
  const TemporaryFolder folder;
  const auto empty = folder.write("empty.fasta", "");
  const auto failure = failure_of([&] { read_fasta(empty); });
  EXPECT_EQ(failure.code, ExitCode::kBadInput);
  EXPECT_NE(failure.message.find("there is no sequence in it"), std::string::npos);
  const auto large = folder.write("large.fasta", ">a\nACDEFG\n");
  EXPECT_NE(failure_of([&] {
              read_fasta(large, {.keep = {}, .max_residues = 5});
            }).message.find("performer data build"),
            std::string::npos);
  EXPECT_EQ(failure_of([&] { read_fasta(folder.file("missing")); }).code, ExitCode::kBadInput);
}

TEST(ReadFasta, BoundsIdsAndTheRecordsThatAreDropped) {
  const TemporaryFolder folder;
  const auto path = folder.write("a.fasta", ">abcd\nAC\n>efgh\nAC\n>ijkl\nAC\n");
  EXPECT_EQ(read_fasta(path, {.keep_ids = true, .keep = {}, .max_id_bytes = 12}).counts.records, 3);
  const auto ids =
      failure_of([&] { read_fasta(path, {.keep_ids = true, .keep = {}, .max_id_bytes = 11}); });
  EXPECT_EQ(ids.code, ExitCode::kBadInput);
  EXPECT_NE(ids.message.find("ids of more than 11 bytes"), std::string::npos) << ids.message;
  EXPECT_EQ(read_fasta(path, {.keep = {}, .max_id_bytes = 0}).counts.records, 3) << "not kept";
  const auto nothing = [](const std::string&) { return false; };
  const auto dropped = failure_of([&] { read_fasta(path, {.keep = nothing, .max_records = 2}); });
  EXPECT_NE(dropped.message.find("more than 2 sequences"), std::string::npos) << dropped.message;
  EXPECT_NE(failure_of([&] {
              read_fasta(path, {.deduplicate = true, .keep = {}, .max_records = 2});
            }).message.find("more than 2 sequences"),
            std::string::npos);
}

TEST(ReadFasta, IdsThatAreKeptAreUtf8) {
  const TemporaryFolder folder;
  const auto path = folder.write("a.fasta", ">good\nAC\n>caf\xe9 x\nAC\n");
  const auto failure = failure_of([&] { read_fasta(path, {.keep_ids = true, .keep = {}}); });
  EXPECT_EQ(failure.code, ExitCode::kBadInput);
  EXPECT_NE(failure.message.find("a.fasta: id of sequence 2: byte 0xe9 in column 4 is not UTF-8"),
            std::string::npos)
      << failure.message;
  EXPECT_EQ(read_fasta(path).counts.records, 2) << "not kept";
}

TEST(Fasta, ARecordIsRefusedAsSoonAsItExceedsItsBound) {
  const TemporaryFolder folder;
  const FastaBound bound{10, "too long"};
  const auto read = [&](const std::string& text) {
    ByteSource source(folder.write("a.fasta", text));
    FastaReader reader(source);
    FastaRecord record;
    std::size_t residues = 0;
    while (reader.next(record, bound)) residues = record.tokens.size();
    return residues;
  };
  EXPECT_EQ(read(">a\nACDEF\nGHIKL\n"), 10U);
  EXPECT_EQ(read(">a\nACDEF  GH--IKL\n"), 10U) << "blanks and gaps do not count";
  for (const char* text : {">a\nACDEF\nGHIKLM\n", ">a\nA-DEFGHIKLMN\n", ">a\nA*********C\n"}) {
    const auto failure = failure_of([&] { read(text); });
    EXPECT_EQ(failure.code, ExitCode::kBadInput) << text;
    EXPECT_NE(failure.message.find("too long"), std::string::npos) << failure.message;
  }
}

TEST(Fasta, AHeaderWithoutEndIsRefused) {
  const TemporaryFolder folder;
  const auto path = folder.write("a.fasta", ">" + std::string(FastaReader::kMaxHeader + 1, 'h'));
  EXPECT_NE(failure_of([&] { parse(path); }).message.find("a header of more than"),
            std::string::npos);
}

std::string warnings_of(const std::string& text) {
  ::testing::internal::CaptureStderr();
  parse_text(text);
  return ::testing::internal::GetCapturedStderr();
}

TEST(Fasta, WarnsOnceOfFilesThatHoldDna) {
  const std::string gene = ">g\nACGTACGTNNACGTACGTACGTACGTACGTACGTACGTACGTACGTACGT\n";
  std::string many;
  for (int i = 0; i < 300; ++i) many += gene;
  const std::string warning = warnings_of(many);
  EXPECT_NE(warning.find("its first 100 sequences hold the letters A, C, G, T"), std::string::npos);
  EXPECT_EQ(warning.find("look like DNA"), warning.rfind("look like DNA"));
  EXPECT_NE(warnings_of(gene + gene + gene).find("look like DNA"), std::string::npos);
  EXPECT_EQ(warnings_of(gene), "") << "too short to tell";
  EXPECT_NE(warnings_of(many + ">p\nMKV\n"), "") << "proteins after the first hundred";
  EXPECT_EQ(warnings_of(">p\nMKV\n" + many), "") << "a protein among the first";
}

TEST(Fasta, SurvivesTwoThousandRandomMutations) {
  const TemporaryFolder folder;
  const std::string good = ">a first\nACDEFGHIKL\nMNPQ*\n>b\r\nRSTV-WY\r\n>c\nACJ";
  write_gzip(folder, "good.gz", good);
  const std::string packed = read_file(folder.file("good.gz"));
  std::mt19937 random(1);
  for (int trial = 0; trial < 2000; ++trial) {
    std::string bytes = trial % 2 == 0 ? good : packed;
    for (unsigned flips = 1 + random() % 4; flips > 0; --flips) {
      const std::size_t at = random() % bytes.size();
      switch (random() % 3) {
        case 0:
          bytes[at] = static_cast<char>(random());
          break;
        case 1:
          bytes.erase(at, 1 + random() % 5);
          break;
        default:
          bytes.insert(at, 1, static_cast<char>(random()));
          break;
      }
      if (bytes.empty()) bytes.assign(1, '>');
    }
    const auto path = folder.write("mutant", bytes);
    const auto failure = failure_of([&] { parse(path); });
    EXPECT_TRUE(failure.code == ExitCode::kOk || failure.code == ExitCode::kBadInput);
  }
}

}  // namespace
}  // namespace performer::data
