#include "performer/data/alphabet.h"
#include "performer/data/fasta.h"
#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/targets.h"

namespace performer::fuzz {

int fasta(Bytes bytes) {
  const MemoryFile file(bytes);
  return accepts(file.path(), [&] {
    data::ByteSource source(file.path());
    data::FastaReader reader(source);
    data::FastaRecord record;
    std::int64_t records = 0;
    std::int64_t residues = 0;
    for (; reader.next(record); ++records) {
      require(!record.tokens.empty(), "a record has residues");
      residues += static_cast<std::int64_t>(record.tokens.size());
      for (const std::uint8_t token : record.tokens) {
        require(token >= data::alphabet::kFirstLetter && token < data::alphabet::kVocabulary,
                "residues are letters of the alphabet");
      }
    }
    require(reader.counts().records == records && reader.counts().residues == residues,
            "what was counted is what was given");
  });
}

}  // namespace performer::fuzz
