// Files made to break the reader: bytes that are not UTF-8, and a little that unpacks to very much.

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "performer/data/dataset.h"
#include "performer/data/pixels.h"
#include "performer/data/read_fasta.h"
#include "performer/data/split_sources.h"
#include "performer/data/text.h"
#include "performer/data/tsv.h"
#include "tests/support/failure.h"
#include "tests/support/gzip_file.h"
#include "tests/support/temporary_folder.h"

namespace performer::data {
namespace {

using performer::testing::Failure;
using performer::testing::failure_of;
using performer::testing::TemporaryFolder;
using performer::testing::write_gzip;

bool says(const Failure& failure, const std::string& words) {
  return failure.code == ExitCode::kBadInput && failure.message.find(words) != std::string::npos;
}

// What `work` takes at its peak, in a process of its own; it is to return true there.
std::int64_t megabytes_for(const std::function<bool()>& work) {
  std::int64_t total = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  const pid_t child = ::fork();
  if (child == 0) ::_exit(work() ? 0 : 1);
  int status = 0;
  struct rusage usage {};
  EXPECT_EQ(::wait4(child, &status, 0, &usage), child);
  EXPECT_EQ(status, 0) << "the work went otherwise than expected";
  return usage.ru_maxrss / 1024 - resident * ::getpagesize() / (1 << 20);
}

// `head`, then `count` times a megabyte of one byte.
std::string write_bomb(const TemporaryFolder& folder, const std::string& head, char byte,
                       int count) {
  const std::string path = folder.file("bomb.gz"), piece(1'000'000, byte);
  const gzFile out = gzopen(path.c_str(), "wb1");
  gzwrite(out, head.data(), static_cast<unsigned>(head.size()));
  for (int i = 0; i < count; ++i) {
    gzwrite(out, piece.data(), static_cast<unsigned>(piece.size()));
  }
  gzclose(out);
  return path;
}

TEST(Utf8, IsRequiredOfTablesWithFileAndLine) {
  const TemporaryFolder folder;
  DataConfig config;
  config.task = "classify";
  config.train = folder.write("a.tsv", "text\tlabel\nx\tth\xC3\xA9\ny\tcaf\xE9\n");
  const auto failure = failure_of([&] { make_token_space(config); });
  EXPECT_TRUE(says(failure, "a.tsv:3: byte 0xe9 in column 6 is not UTF-8")) << failure.message;
  EXPECT_NE(failure.message.find("iconv -f LATIN1"), std::string::npos);
  const auto header = folder.write("b.tsv", "t\xE9xt\tlabel\n");
  EXPECT_TRUE(says(failure_of([&] { TsvReader reader(header); }), "b.tsv:1: byte 0xe9"));
}

TEST(Utf8, IsNotRequiredOfTextReadAsBytes) {
  const TemporaryFolder folder;
  const auto path = folder.write("a.txt", "caf\xE9\n");
  EXPECT_EQ(open_text({path}, byte_space())->size(), 2 + 5);
}

TEST(Utf8, IsNotRequiredOfFastaHeaders) {
  const TemporaryFolder folder;
  EXPECT_EQ(read_fasta(folder.write("a.fasta", ">caf\xE9\nAC\n")).counts.records, 1);
}

TEST(Tables, OfTabsAloneAreRefused) {
  const TemporaryFolder folder;
  const auto wide = folder.write("wide.tsv", std::string(1 << 20, '\t') + "\n");
  EXPECT_TRUE(says(failure_of([&] { TsvReader reader(wide); }), "more than 1024 columns"));
  TsvReader reader(folder.write("a.tsv", "text\tlabel\na\tb" + std::string(1 << 20, '\t') + "\n"));
  std::vector<std::string> fields;
  EXPECT_TRUE(says(failure_of([&] { reader.next(fields); }), "a.tsv:2: 1048578 fields"));
  EXPECT_LE(fields.size(), 2U);
}

TEST(Tables, NameTheirColumnsInOneLine) {
  const TemporaryFolder folder;
  const TsvReader reader(folder.write("a.tsv", "te\\nxt\tlabel\n"));
  const auto failure = failure_of([&] { reader.at("text"); });
  EXPECT_EQ(failure.message.find('\n'), std::string::npos) << failure.message;
}

TEST(Tables, WithTooManyClassesAskForTheColumn) {
  const TemporaryFolder folder;
  std::string text = "text\tlabel\n";
  for (int i = 0; i < (1 << 16) + 1; ++i) text += fmt::format("x\t{}\n", i);
  DataConfig config;
  config.task = "classify";
  config.train = folder.write("a.tsv", text);
  EXPECT_TRUE(says(failure_of([&] { make_token_space(config); }), "is data.label_column"));
}

TEST(Tables, WithClassesAsLongAsTextsAskForTheColumn) {
  const TemporaryFolder folder;
  DataConfig config;
  config.task = "classify";
  config.train = folder.write("a.tsv", "text\tlabel\nx\ta\ny\t" + std::string(4097, 'b') + "\n");
  const auto failure = failure_of([&] { make_token_space(config); });
  EXPECT_TRUE(says(failure, "a.tsv:3: a class of 4097 bytes; is data.label_column = \"label\""))
      << failure.message;
}

TEST(Tables, OfDocumentsWithLongIdsTakeNoMemoryForThem) {
  const TemporaryFolder folder;
  std::string documents = "id\ttext\n";
  const std::string filler(1'000'000, 'i');
  for (int i = 0; i < 100; ++i) documents += fmt::format("{}{}\tx\n", filler, i);
  DataConfig config;
  config.task = "match";
  config.documents = write_gzip(folder, "d.tsv.gz", documents);
  config.train =
      folder.write("a.tsv", fmt::format("a\tb\tlabel\n{0}1\t{0}2\tx\n{0}3\t{0}4\ty\n", filler));
  documents.clear();
  documents.shrink_to_fit();
  EXPECT_LT(megabytes_for([&] { return open_dataset(config, Split::kTrain)->size() == 2; }), 50);
}

TEST(Tables, OfSplitsTakeTheSameMemoryWhateverTheIdsAre) {
  const TemporaryFolder folder;
  std::string text = "id\tsplit\n";
  const std::string filler(1'000'000, 'i');
  for (int i = 0; i < 100; ++i) text += fmt::format("{}{}\tvalid\n", filler, i);
  text += "a\ttrain\nb\ttrain\nb\tother\n";
  const auto path = write_gzip(folder, "t.tsv.gz", text);
  text.clear();
  text.shrink_to_fit();
  const auto read = [&] {
    const SplitTable table(path);
    return table.find(filler + "7") == Split::kValid && table.find("a") == Split::kTrain &&
           !table.find("b") && !table.find("c") && !table.contains(Split::kTest);
  };
  EXPECT_LT(megabytes_for(read), 50);
}

TEST(Tables, AreBoundedInTheirRowsAndBytes) {
  const TemporaryFolder folder;
  TsvReader reader(folder.write("a.tsv", "id\na\n\nb\nc\n"), 2);
  std::vector<std::string> fields;
  EXPECT_TRUE(reader.next(fields) && reader.next(fields));
  EXPECT_TRUE(says(failure_of([&] { reader.next(fields); }), "a.tsv:5: more than 2 rows"));
  const auto path = folder.write("b.tsv", "id\nabcdef\n");
  EXPECT_TRUE(says(failure_of([&] { TsvReader(path, 2, 7).next(fields); }), "b.tsv:2: more text"));
}

TEST(Images, FoldersWithAPipeOrALoopAreNotWaitedFor) {
  const TemporaryFolder folder;
  ASSERT_EQ(::mkfifo(folder.file("a.png").c_str(), 0600), 0);
  std::filesystem::create_symlink("loop.png", folder.file("loop.png"));
  EXPECT_TRUE(says(failure_of([&] { read_images({folder.file("")}); }), "holds no .png"));
  EXPECT_TRUE(says(failure_of([&] { read_images({folder.file("loop.png")}); }), "loop.png"));
  folder.write("b.pgm", "P5 1 1 255\nx");
  EXPECT_EQ(read_images({folder.file("")}).sequences->size(), 1);
}

TEST(Images, OfPnmHoldTheNumbersOfTheirHeaderAndNothingBehind) {
  const TemporaryFolder folder;
  EXPECT_EQ(read_image(folder.write("a.pgm", "P5 000000002 1 255\nab")).values.size(), 2U);
  for (const char* text : {"P5 0000000101 255 255\n", "P5 1 1 2550000000\nx"}) {
    const auto path = folder.write("b.pgm", text + std::string(9999, 'x'));
    EXPECT_TRUE(says(failure_of([&] { read_image(path); }), "damaged header")) << text;
  }
  const auto longer = folder.write("c.pgm", "P5 2 1 255\nabc");
  EXPECT_TRUE(says(failure_of([&] { read_image(longer); }), "3 values, its header says 2"));
}

std::string big_endian(std::uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift);
  return bytes;
}

std::string chunk(const std::string& type, const std::string& data) {
  const std::string body = type + data;
  const auto crc = crc32_z(0, reinterpret_cast<const Bytef*>(body.data()), body.size());
  return big_endian(static_cast<std::uint32_t>(data.size())) + body +
         big_endian(static_cast<std::uint32_t>(crc));
}

std::string deflated(const std::string& data) {
  std::string out(compressBound(data.size()), '\0');
  uLongf size = out.size();
  EXPECT_EQ(compress(reinterpret_cast<Bytef*>(out.data()), &size,
                     reinterpret_cast<const Bytef*>(data.data()), data.size()),
            Z_OK);
  out.resize(size);
  return out;
}

std::string png(std::uint32_t width, std::uint32_t height, const std::string& extra) {
  const std::string head = big_endian(width) + big_endian(height) + std::string("\x08\0\0\0\0", 5);
  return "\x89PNG\r\n\x1a\n" + chunk("IHDR", head) + extra +
         chunk("IDAT", deflated(std::string("\0\x07", 2))) + chunk("IEND", "");
}

TEST(Images, WithTextsThatUnpackToVeryMuchTakeNoMemory) {
  const TemporaryFolder folder;
  const auto text = chunk("zTXt", std::string("k\0\0", 3) + deflated(std::string(7'900'000, 'a')));
  std::string texts;
  for (int i = 0; i < 150; ++i) texts += text;
  const auto path = folder.write("a.png", png(1, 1, texts));
  EXPECT_LT(megabytes_for([&] { return read_image(path).values == std::vector<std::uint8_t>{7}; }),
            200);
}

TEST(Images, LargerThanARowCanBeAreRefusedBeforeTheyAreUnpacked) {
  const TemporaryFolder folder;
  const auto refused = [](const std::string& path) {
    return says(failure_of([&] { read_image(path); }), "at most 67108864 values");
  };
  const auto large_png = folder.write("a.png", png(16384, 16384, ""));
  const auto large_ppm = folder.write("a.ppm", "P6 9000 9000 255\n");
  EXPECT_LT(megabytes_for([&] { return refused(large_png) && refused(large_ppm); }), 50);
}

TEST(Images, CutShortInsideAChunkAreRefused) {
  const TemporaryFolder folder;
  const std::string whole = png(1, 1, "");
  for (std::size_t size = 8; size < whole.size(); ++size) {
    const auto path = folder.write("a.png", whole.substr(0, size));
    EXPECT_EQ(failure_of([&] { read_image(path); }).code, ExitCode::kBadInput) << size;
  }
  const auto huge = folder.write("b.png", whole.substr(0, 33) + "\xFF\xFF\xFF\xFFIDAT");
  EXPECT_EQ(failure_of([&] { read_image(huge); }).code, ExitCode::kBadInput);
}

TEST(Idx, ContentBeyondTheHeaderIsNotKept) {
  const TemporaryFolder folder;
  const std::string head("\0\0\x08\x03\0\0\0\x01\0\0\0\x01\0\0\0\x02", 16);
  const auto bomb = write_bomb(folder, head, '\0', 400);
  const auto read = [&] { read_images({bomb}); };
  EXPECT_LT(megabytes_for([&] { return says(failure_of(read), "more values than the 2"); }), 50);
}

TEST(Fasta, ARecordThatUnpacksBeyondTheBoundTakesNoMoreMemoryThanTheBound) {
  const TemporaryFolder folder;
  const auto bomb = write_bomb(folder, ">a\n", 'K', 400);
  const FastaOptions options{.keep = {}, .max_residues = 1 << 24};
  const auto read = [&] { read_fasta(bomb, options); };
  EXPECT_LT(megabytes_for([&] { return says(failure_of(read), "more than 16777216 residues"); }),
            100);
}

}  // namespace
}  // namespace performer::data
