#include "performer/core/safetensors.h"

#include "tests/fuzz/targets.h"

namespace performer::fuzz {

int safetensors(Bytes bytes) {
  return accepts("input.safetensors", [&] {
    const auto header =
        performer::safetensors::parse_header(bytes, std::ssize(bytes), "input.safetensors");
    std::int64_t covered = 0;
    for (const auto& tensor : header.tensors) {
      std::int64_t bits = performer::safetensors::bits_of(tensor.dtype);
      for (const std::int64_t side : tensor.shape) bits *= side;
      require(tensor.begin == covered && 8 * (tensor.end - tensor.begin) == bits,
              "tensors lie side by side, each as large as its shape");
      covered = tensor.end;
    }
    require(header.data_begin + covered == static_cast<std::int64_t>(bytes.size()),
            "tensors fill the file");
  });
}

}  // namespace performer::fuzz
