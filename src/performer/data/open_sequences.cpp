#include "performer/data/open_sequences.h"

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <utility>
#include <vector>

#include "performer/core/error.h"
#include "performer/data/byte_source.h"
#include "performer/data/encoding.h"
#include "performer/data/read_fasta.h"
#include "performer/data/sequence_dataset.h"

namespace performer::data {
namespace {

constexpr std::int64_t kMostText = std::int64_t{1} << 31;

class LineSequences final : public WholeSequences {
 public:
  LineSequences(const std::string& text, const TokenSpace& space) {
    std::string_view rest = text;
    for (std::int64_t line = 1; !rest.empty(); ++line) {
      const auto end = std::min(rest.find('\n'), rest.size());
      auto own = rest.substr(0, end);
      if (own.ends_with('\r')) own.remove_suffix(1);
      rest.remove_prefix(std::min(rest.size(), end + 1));
      if (own.find_first_not_of(" \t") == std::string_view::npos) continue;
      add(line, space.encode(own), space);
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
  std::string id(std::int64_t sequence) const override {
    return std::to_string(line(sequence).number);
  }

 private:
  struct Line {
    std::int64_t number, residues;
    std::vector<std::int64_t> tokens;
  };

  void add(std::int64_t number, std::vector<std::int64_t> tokens, const TokenSpace& space) {
    const auto residues = static_cast<std::int64_t>(tokens.size());
    if (space.bos >= 0) tokens.insert(tokens.begin(), space.bos);
    if (space.eos >= 0) tokens.push_back(space.eos);
    lines_.push_back({number, residues, std::move(tokens)});
  }
  const Line& line(std::int64_t i) const { return lines_.at(static_cast<std::size_t>(i)); }

  std::vector<Line> lines_;
};

}  // namespace

std::shared_ptr<const WholeSequences> open_sequences(const std::string& path,
                                                     const TokenSpace& space) {
  const bool standard = path == "stdin" && !std::filesystem::exists(path);
  const std::string name = standard ? "-" : path;
  if (space.kind == "protein") {
    FastaOptions options;
    options.keep_ids = true;
    auto content = read_fasta(name, options);
    const auto rows =
        std::make_shared<const SequenceDataset>(DataConfig{}, space, std::move(content.sequences));
    return {rows, rows->whole()};
  }
  if (space.kind == "pixels" || space.kind == "recall") {
    fail(ExitCode::kUsage, "{}: the model reads {}, neither sequences nor text", path, space.kind);
  }
  const std::string text = read_all(name, kMostText);
  if (space.kind != "bytes") check_utf8_lines(text, name);
  auto lines = std::make_shared<const LineSequences>(text, space);
  if (lines->count() == 0) fail(ExitCode::kBadInput, "{}: holds no text", path);
  return lines;
}

}  // namespace performer::data
