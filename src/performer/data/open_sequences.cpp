#include "performer/data/open_sequences.h"

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <utility>
#include <vector>

#include "performer/core/error.h"
#include "performer/data/alphabet.h"
#include "performer/data/byte_source.h"
#include "performer/data/encoding.h"
#include "performer/data/path_list.h"
#include "performer/data/read_fasta.h"
#include "performer/data/sequence_dataset.h"

namespace performer::data {
namespace {

constexpr std::int64_t kMostText = std::int64_t{1} << 31;

class LineSequences final : public WholeSequences {
 public:
  /// The letters of a FASTA file's records.
  LineSequences(const SequenceSource& records, const TokenSpace& space) {
    for (std::int64_t i = 0; i < records.size(); ++i) {
      std::string letters;
      for (const auto token : records.tokens(i)) letters += alphabet::name_of(token);
      add(records.id(i), letters, space);
    }
  }
  LineSequences(const std::string& text, const TokenSpace& space) {
    std::string_view rest = text;
    for (std::int64_t line = 1; !rest.empty(); ++line) {
      const auto end = std::min(rest.find('\n'), rest.size());
      auto own = rest.substr(0, end);
      if (own.ends_with('\r')) own.remove_suffix(1);
      rest.remove_prefix(std::min(rest.size(), end + 1));
      if (own.find_first_not_of(" \t") == std::string_view::npos) continue;
      add(std::to_string(line), own, space);
    }
  }

  std::int64_t count() const override { return static_cast<std::int64_t>(lines_.size()); }
  std::int64_t tokens(std::int64_t sequence) const override {
    return static_cast<std::int64_t>(line(sequence).tokens.size());
  }
  void read(std::int64_t sequence, std::int64_t begin, std::span<std::int64_t> out) const override {
    std::copy_n(line(sequence).tokens.begin() + begin, out.size(), out.begin());
  }
  std::int64_t residues(std::int64_t sequence) const override { return line(sequence).residues; }
  std::string id(std::int64_t sequence) const override { return line(sequence).id; }

 private:
  struct Line {
    std::string id;
    std::int64_t residues;
    std::vector<std::int64_t> tokens;
  };

  void add(std::string id, std::string_view text, const TokenSpace& space) {
    auto tokens = space.encode_whole(text);
    if (space.kind != "hf" && space.bos >= 0) tokens.insert(tokens.begin(), space.bos);
    if (space.kind != "hf" && space.eos >= 0) tokens.push_back(space.eos);
    const auto residues =
        std::ranges::count_if(tokens, [&](auto token) { return space.is_regular(token); });
    lines_.push_back({std::move(id), residues, std::move(tokens)});
  }
  const Line& line(std::int64_t i) const { return lines_.at(static_cast<std::size_t>(i)); }

  std::vector<Line> lines_;
};

std::unique_ptr<SequenceSource> records_of(const std::string& name) {
  FastaOptions options;
  options.keep_ids = true;
  return std::move(read_fasta(name, options).sequences);
}

}  // namespace

std::shared_ptr<const WholeSequences> open_sequences(const std::string& path,
                                                     const TokenSpace& space) {
  const bool standard = path == "stdin" && !std::filesystem::exists(path);
  const std::string name = standard ? "-" : path;
  if (space.kind == "protein") {
    const auto rows =
        std::make_shared<const SequenceDataset>(DataConfig{}, space, records_of(name));
    return {rows, rows->whole()};
  }
  if (space.kind == "pixels" || space.kind == "recall") {
    fail(ExitCode::kUsage, "{}: the model reads {}, neither sequences nor text", path, space.kind);
  }
  // A model of proteins from elsewhere has a vocabulary of its own.
  if (space.kind == "hf" && is_named_as(path, "protein")) {
    return std::make_shared<const LineSequences>(*records_of(name), space);
  }
  const std::string text = read_all(name, kMostText);
  if (space.kind != "bytes") check_utf8_lines(text, name);
  auto lines = std::make_shared<const LineSequences>(text, space);
  if (lines->count() == 0) fail(ExitCode::kBadInput, "{}: holds no text", path);
  return lines;
}

}  // namespace performer::data
