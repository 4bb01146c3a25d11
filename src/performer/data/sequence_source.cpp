#include "performer/data/sequence_source.h"

#include <string>
#include <unordered_set>

#include "performer/core/error.h"
#include "performer/data/content_hash.h"

namespace performer::data {

void MemorySequences::add(std::span<const std::uint8_t> tokens) {
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  ends_.push_back(static_cast<std::int64_t>(tokens_.size()));
}

std::int64_t MemorySequences::length(std::int64_t index) const {
  const auto i = static_cast<std::size_t>(index);
  return ends_[i + 1] - ends_[i];
}

std::span<const std::uint8_t> MemorySequences::tokens(std::int64_t index) const {
  const auto begin = static_cast<std::size_t>(ends_[static_cast<std::size_t>(index)]);
  return std::span(tokens_).subspan(begin, static_cast<std::size_t>(length(index)));
}

FastaContent read_fasta(const std::string& path, const FastaOptions& options) {
  ByteSource source(path);
  FastaReader reader(source);
  FastaRecord record;
  FastaContent content{std::make_unique<MemorySequences>(), {}};
  std::unordered_set<ContentHash, ContentHashHasher> seen;
  std::unordered_set<std::string> ids;
  std::int64_t duplicate_ids = 0, duplicates = 0;
  while (reader.next(record)) {
    const std::string id = record.id();
    if (!ids.insert(id).second) ++duplicate_ids;
    if (options.keep && !options.keep(id)) continue;
    if (options.deduplicate && !seen.insert(content_hash(record.tokens)).second) {
      ++duplicates;
      continue;
    }
    const std::int64_t total =
        content.sequences->total() + static_cast<std::int64_t>(record.tokens.size());
    if (total > options.max_residues) {
      fail(ExitCode::kBadInput,
           "{}: more than {} residues, too many to hold in memory; run `performer data build` on "
           "it once and use the .pds file",
           source.name(), options.max_residues);
    }
    content.sequences->add(record.tokens);
  }
  content.counts = reader.counts();
  content.counts.duplicate_ids = duplicate_ids;
  content.counts.duplicates = duplicates;
  if (content.counts.records == 0) {
    fail(ExitCode::kBadInput, "{}: there is no sequence in it ({} bytes, {} empty records)",
         source.name(), content.counts.bytes, content.counts.blank);
  }
  return content;
}

}  // namespace performer::data
