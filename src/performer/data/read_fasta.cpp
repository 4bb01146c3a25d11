#include "performer/data/read_fasta.h"

#include <unordered_set>
#include <utility>

#include "performer/core/error.h"
#include "performer/core/safe_text.h"
#include "performer/data/content_hash.h"
#include "performer/data/encoding.h"
#include "performer/data/fasta.h"

namespace performer::data {
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
    reader.require_records();
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
    if (++records_ > options_.max_records) {
      fail(ExitCode::kBadInput, "{}: more than {} sequences, too many to hold in memory; {}", name,
           options_.max_records, kAdvice);
    }
    const std::string id = record.id();
    if (!ids_.insert(content_hash(id)).second) ++content_.counts.duplicate_ids;
    if (options_.keep && !options_.keep(id)) return;
    if (options_.deduplicate && !seen_.insert(content_hash(record.tokens)).second) {
      ++content_.counts.duplicates;
      return;
    }
    content_.sequences->add(record.tokens);
    if (options_.keep_ids) keep_id(id, name);
  }

  // Ids go into files that are text or say that they are.
  void keep_id(const std::string& id, const std::string& name) {
    if (!is_utf8(id)) check_utf8(id, fmt::format("{}: id of sequence {}", name, records_));
    id_bytes_ += std::ssize(id);
    if (id_bytes_ > options_.max_id_bytes) {
      fail(ExitCode::kBadInput,
           "{}: ids of more than {} bytes together, too many to hold in memory; shorten the first "
           "words of the headers",
           name, options_.max_id_bytes);
    }
    content_.sequences->add_id(id);
  }

  const FastaOptions& options_;
  std::string problem_;
  FastaContent content_{std::make_unique<MemorySequences>(), {}};
  std::unordered_set<ContentHash, ContentHashHasher> seen_, ids_;
  std::int64_t records_ = 0, id_bytes_ = 0;
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
