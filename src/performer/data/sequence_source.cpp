#include "performer/data/sequence_source.h"

#include <algorithm>
#include <string>
#include <unordered_set>

#include "performer/core/error.h"
#include "performer/data/content_hash.h"

namespace performer::data {
namespace {

constexpr std::int64_t kMaxSequences = std::int64_t{1} << 27;  // their ends take 8 bytes each

}  // namespace

std::vector<std::uint8_t> SequenceSource::tokens(std::int64_t index) const {
  std::vector<std::uint8_t> all(static_cast<std::size_t>(length(index)));
  read(index, 0, all);
  return all;
}

void MemorySequences::add(std::span<const std::uint8_t> tokens) {
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  ends_.push_back(static_cast<std::int64_t>(tokens_.size()));
}

std::int64_t MemorySequences::length(std::int64_t index) const {
  const auto i = static_cast<std::size_t>(index);
  return ends_[i + 1] - ends_[i];
}

void MemorySequences::read(std::int64_t index, std::int64_t begin,
                           std::span<std::uint8_t> out) const {
  const std::int64_t from = ends_[static_cast<std::size_t>(index)] + begin;
  std::copy_n(tokens_.begin() + from, out.size(), out.begin());
}

std::string MemorySequences::id(std::int64_t index) const {
  return ids_.empty() ? std::string() : ids_[static_cast<std::size_t>(index)];
}

JoinedSequences::JoinedSequences(std::vector<std::unique_ptr<SequenceSource>> parts)
    : parts_(std::move(parts)) {
  std::int64_t end = 0;
  for (const auto& part : parts_) ends_.push_back(end += part->size());
}

JoinedSequences::Place JoinedSequences::place_of(std::int64_t index) const {
  const auto part =
      static_cast<std::size_t>(std::ranges::upper_bound(ends_, index) - ends_.begin());
  return {*parts_[part], index - (part > 0 ? ends_[part - 1] : 0)};
}

std::int64_t JoinedSequences::length(std::int64_t index) const {
  const Place place = place_of(index);
  return place.part.length(place.index);
}

std::string JoinedSequences::id(std::int64_t index) const {
  const Place place = place_of(index);
  return place.part.id(place.index);
}

FastaCounts JoinedSequences::counts() const {
  FastaCounts counts;
  for (const auto& part : parts_) counts += part->counts();
  return counts;
}

void JoinedSequences::read(std::int64_t index, std::int64_t begin,
                           std::span<std::uint8_t> out) const {
  const Place place = place_of(index);
  place.part.read(place.index, begin, out);
}

namespace {

// Reads files into one piece of memory.
class FastaCollector {
 public:
  explicit FastaCollector(const FastaOptions& options)
      : options_(options),
        problem_(fmt::format("more than {} residues, too many to hold in memory; {}",
                             options.max_residues, kAdvice)) {}

  void read(const std::string& path) {
    ByteSource source(path);
    FastaReader reader(source);
    FastaRecord record;
    while (reader.next(record, {options_.max_residues - content_.sequences->total(), problem_})) {
      add(record, source.name());
    }
    if (reader.counts().records == 0) {
      fail(ExitCode::kBadInput, "{}: there is no sequence in it ({} bytes, {} empty records)",
           source.name(), reader.counts().bytes, reader.counts().blank);
    }
    content_.counts += reader.counts();
  }

  FastaContent finish() {
    content_.sequences->set_counts(content_.counts);
    return std::move(content_);
  }

 private:
  static constexpr const char* kAdvice =
      "run `performer data build` on them once and use the .pds file";

  void add(const FastaRecord& record, const std::string& name) {
    const std::string id = record.id();
    if (!ids_.insert(content_hash(id)).second) ++content_.counts.duplicate_ids;
    if (options_.keep && !options_.keep(id)) return;
    if (options_.deduplicate && !seen_.insert(content_hash(record.tokens)).second) {
      ++content_.counts.duplicates;
      return;
    }
    if (content_.sequences->size() == kMaxSequences) {
      fail(ExitCode::kBadInput, "{}: more than {} sequences, too many to hold in memory; {}", name,
           kMaxSequences, kAdvice);
    }
    content_.sequences->add(record.tokens);
    if (options_.keep_ids) content_.sequences->add_id(id);
  }

  const FastaOptions& options_;
  std::string problem_;
  FastaContent content_{std::make_unique<MemorySequences>(), {}};
  std::unordered_set<ContentHash, ContentHashHasher> seen_, ids_;
};

}  // namespace

FastaContent read_fasta(const std::vector<std::string>& files, const FastaOptions& options) {
  FastaCollector collector(options);
  for (const auto& file : files) collector.read(file);
  return collector.finish();
}

FastaContent read_fasta(const std::string& file, const FastaOptions& options) {
  return read_fasta(std::vector<std::string>{file}, options);
}

}  // namespace performer::data
