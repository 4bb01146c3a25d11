#include "performer/data/split_fasta.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <optional>
#include <unordered_set>

#include "performer/core/error.h"
#include "performer/core/file.h"
#include "performer/data/alphabet.h"
#include "performer/data/content_hash.h"
#include "performer/data/fasta.h"
#include "performer/data/pds_writer.h"
#include "performer/data/tsv.h"

namespace performer::data {
namespace {

namespace fs = std::filesystem;

constexpr std::array kParts = {"train", "valid", "test", "ood"};
constexpr std::array<std::string_view, 2> kFormats = {"fasta", "pds"};

using Names = std::unordered_set<std::string>;
using Hashes = std::unordered_set<ContentHash, ContentHashHasher>;

bool names_any(std::string_view field, const Names& families) {
  while (!field.empty()) {
    const std::size_t end = std::min(field.find_first_of(",;"), field.size());
    if (families.contains(std::string(field.substr(0, end)))) return true;
    field.remove_prefix(std::min(end + 1, field.size()));
  }
  return false;
}

// Ids of the members of the held-out families.
Hashes held_out_ids(const SplitOptions& options) {
  if (options.families.empty()) {
    if (options.held_out.empty()) return {};
    fail(ExitCode::kUsage, "--held-out: needs --families, a TSV with columns id and family");
  }
  Names families(options.held_out.begin(), options.held_out.end());
  if (families.empty()) {
    for (const std::string_view family : kPaperFamilies) families.emplace(family);
  }
  TsvReader reader(options.families, TsvReader::kMaxRows);
  const std::size_t id = reader.at("id"), family = reader.at("family");
  std::vector<std::string> fields;
  Hashes ids;
  while (reader.next(fields)) {
    if (names_any(fields[family], families)) ids.insert(content_hash(fields[id]));
  }
  if (ids.empty()) {
    fail(ExitCode::kBadInput, "{}: has no member of {}; name families with --held-out",
         reader.name(),
         options.held_out.empty() ? "the paper's Pfam families" : "the held-out families");
  }
  return ids;
}

// One output, made when its first sequence comes.
class Part {
 public:
  Part(std::string name, const fs::path& folder, const std::string& format)
      : name_(std::move(name)),
        path_((folder / (name_ + "." + format)).string()),
        built_(format == "pds") {}

  void add(const FastaRecord& record) {
    statistics_.add(record.tokens);
    if (built_) {
      if (!pds_) pds_ = std::make_unique<PdsWriter>(path_);
      pds_->add(record.tokens);
      return;
    }
    if (!text_) text_ = std::make_unique<AtomicFile>(path_);
    buffer_ += '>' + record.header + '\n';
    for (const std::uint8_t token : record.tokens) {
      buffer_ += alphabet::kLetters[static_cast<std::size_t>(token - alphabet::kFirstLetter)];
    }
    buffer_ += '\n';
    if (buffer_.size() > kBuffer) flush();
  }

  SplitPart finish() {
    if (pds_) pds_->finish();
    if (text_) {
      flush();
      text_->commit();
    }
    return {name_, pds_ || text_ ? path_ : std::string(), statistics_.lengths()};
  }

 private:
  static constexpr std::size_t kBuffer = std::size_t{1} << 20;

  void flush() {
    text_->writer().write(buffer_);
    buffer_.clear();
  }

  std::string name_, path_;
  bool built_;
  std::unique_ptr<PdsWriter> pds_;
  std::unique_ptr<AtomicFile> text_;
  std::string buffer_;
  SequenceStatistics statistics_{alphabet::kVocabulary};
};

void check_options(const SplitOptions& o) {
  if (!(o.valid >= 0 && o.test >= 0 && o.valid + o.test < 1)) {
    fail(ExitCode::kUsage,
         "--valid and --test: shares of at least 0, below 1 together, got {} and {}", o.valid,
         o.test);
  }
  if (std::ranges::find(kFormats, o.format) == kFormats.end()) {
    fail(ExitCode::kUsage, "--format: must be fasta or pds, got '{}'", o.format);
  }
}

// Parts of an earlier split, which hold sequences that are now in others.
std::vector<fs::path> earlier_parts(const fs::path& folder) {
  std::vector<fs::path> paths;
  for (const char* name : kParts) {
    for (const auto format : kFormats) {
      auto path = folder / fmt::format("{}.{}", name, format);
      std::error_code unknown;
      if (fs::exists(fs::symlink_status(path, unknown))) paths.push_back(std::move(path));
    }
  }
  return paths;
}

void check_replaceable(const std::vector<fs::path>& earlier, const std::string& input,
                       const SplitOptions& options) {
  for (const auto& path : earlier) {
    if (!options.overwrite) {
      fail(
          ExitCode::kUsage,
          "{}: already exists, and its sequences would be in other parts too; name another folder, "
          "or pass --overwrite",
          path.string());
    }
    std::error_code unknown;
    if (fs::equivalent(path, input, unknown)) {
      fail(ExitCode::kUsage, "{}: is the input of the split; name another folder", path.string());
    }
    if (!fs::is_regular_file(path, unknown)) {
      fail(ExitCode::kNoSpace, "{}: is no file to be replaced; move it away", path.string());
    }
  }
}

// Of parts that got no sequence this time, and of the other format.
void remove_others(const std::vector<fs::path>& earlier, const SplitResult& result) {
  for (const auto& path : earlier) {
    const bool made = std::ranges::any_of(
        result.parts, [&](const SplitPart& part) { return part.path == path.string(); });
    std::error_code error;
    if (!made && !fs::remove(path, error) && error) fail_write(path, error.value());
  }
}

}  // namespace

SplitResult split_fasta(const std::string& input, const std::string& folder,
                        const SplitOptions& options) {
  check_options(options);
  const Hashes held_out = held_out_ids(options);
  const auto earlier = earlier_parts(folder);
  check_replaceable(earlier, input, options);
  ByteSource source(input);
  FastaReader reader(source);
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) fail(ExitCode::kNoSpace, "{}: cannot be made: {}", folder, error.message());
  std::vector<Part> parts;
  parts.reserve(kParts.size());
  for (const char* name : kParts) {
    parts.emplace_back(name, folder, options.format);
  }
  SplitResult result;
  Hashes seen;
  FastaRecord record;
  while (reader.next(record)) {
    const ContentHash hash = content_hash(record.tokens);
    if (options.deduplicate && !seen.insert(hash).second) {
      ++result.duplicates;
      continue;
    }
    const double place = static_cast<double>(hash[1] >> 11) * 0x1p-53;
    const std::size_t drawn = place < options.valid                  ? 1
                              : place < options.valid + options.test ? 2
                                                                     : 0;
    parts[held_out.contains(content_hash(record.id())) ? 3 : drawn].add(record);
  }
  reader.require_records();
  for (Part& part : parts) result.parts.push_back(part.finish());
  remove_others(earlier, result);
  return result;
}

}  // namespace performer::data
