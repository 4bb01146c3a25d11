#include "performer/data/build.h"

#include <filesystem>
#include <unordered_set>

#include "performer/core/error.h"
#include "performer/data/alphabet.h"
#include "performer/data/content_hash.h"
#include "performer/data/pds_file.h"
#include "performer/data/pds_writer.h"

namespace performer::data {
namespace {

constexpr std::int64_t kProgressBytes = std::int64_t{1} << 27;

}  // namespace

BuildResult build_pds(const std::string& input, const std::string& output,
                      const BuildOptions& options) {
  ByteSource source(input);
  std::error_code unknown;
  if (std::filesystem::equivalent(input, output, unknown)) {
    fail(ExitCode::kUsage, "{}: is the input too; name another output", output);
  }
  FastaReader reader(source);
  FastaRecord record;
  PdsWriter writer(output);
  SequenceStatistics statistics(alphabet::kVocabulary);
  std::unordered_set<ContentHash, ContentHashHasher> seen;
  std::int64_t duplicates = 0, reported = 0;
  while (reader.next(record)) {
    if (options.progress && reader.counts().bytes - reported >= kProgressBytes) {
      reported = reader.counts().bytes;
      options.progress(reader.counts());
    }
    if (options.deduplicate && !seen.insert(content_hash(record.tokens)).second) {
      ++duplicates;
      continue;
    }
    writer.add(record.tokens);
    statistics.add(record.tokens);
  }
  BuildResult result{reader.counts(), statistics.lengths(), {}};
  result.counts.duplicates = duplicates;
  reader.require_records();
  result.sha256 = writer.finish();
  return result;
}

FastaCounts for_sequences(const std::string& path,
                          const std::function<void(const FastaRecord& record)>& take) {
  FastaRecord record;
  if (is_pds(path)) {
    const PdsFile file(path);
    FastaCounts counts;
    for (std::int64_t i = 0; i < file.size(); ++i) {
      record.tokens.resize(static_cast<std::size_t>(file.length(i)));
      file.read(i, 0, record.tokens);
      take(record);
      ++counts.records;
      counts.residues += file.length(i);
    }
    return counts;
  }
  ByteSource source(path);
  FastaReader reader(source);
  while (reader.next(record)) take(record);
  reader.require_records();
  return reader.counts();
}

}  // namespace performer::data
