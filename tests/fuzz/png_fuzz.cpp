#include "performer/data/pixels.h"
#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/targets.h"

namespace performer::fuzz {

int png(Bytes bytes) {
  const MemoryFile file(bytes);
  return accepts(file.path(), [&] {
    const data::Image image = data::read_image(file.path());
    require(image.shape.size() == 3, "an image has rows, columns and channels");
    const auto size = image.shape[0] * image.shape[1] * image.shape[2];
    require(size > 0 && static_cast<std::int64_t>(image.values.size()) == size,
            "an image has a value for each place");
  });
}

}  // namespace performer::fuzz
