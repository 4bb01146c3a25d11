#include "performer/data/content_hash.h"

#include <openssl/sha.h>

namespace performer::data {

ContentHash content_hash(std::span<const std::uint8_t> bytes) {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest{};
  SHA256(bytes.data(), bytes.size(), digest.data());
  ContentHash hash{};
  for (std::size_t word = 0; word < hash.size(); ++word) {  // big-endian on every machine
    for (std::size_t i = 0; i < 8; ++i) hash[word] = hash[word] << 8 | digest[8 * word + i];
  }
  return hash;
}

ContentHash content_hash(std::string_view text) {
  return content_hash(std::span(reinterpret_cast<const std::uint8_t*>(text.data()), text.size()));
}

}  // namespace performer::data
