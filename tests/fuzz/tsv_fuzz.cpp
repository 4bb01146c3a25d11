#include <string>
#include <vector>

#include "performer/data/tsv.h"
#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/targets.h"

namespace performer::fuzz {

int tsv(Bytes bytes) {
  const MemoryFile file(bytes);
  return accepts(file.path(), [&] {
    data::TsvReader reader(file.path());
    reader.find("label");
    std::vector<std::string> fields;
    std::size_t width = 0;
    while (reader.next(fields)) {
      require(width == 0 || fields.size() == width, "rows have as many fields as the header");
      width = fields.size();
    }
    reader.at("label");
  });
}

}  // namespace performer::fuzz
