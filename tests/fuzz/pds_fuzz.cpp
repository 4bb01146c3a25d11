#include <zlib.h>

#include <cstddef>
#include <cstring>
#include <vector>

#include "performer/data/alphabet.h"
#include "performer/data/pds_file.h"
#include "performer/data/pds_format.h"
#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/targets.h"

namespace performer::fuzz {
namespace {

using data::pds::Footer;
using data::pds::Header;

std::uint32_t crc_of(Bytes bytes) {
  return static_cast<std::uint32_t>(
      crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

/// The bytes with the checksums that they should have: an attacker computes them too, and without
/// them every change ends at the first one.
std::vector<std::byte> sealed(Bytes bytes) {
  std::vector<std::byte> all(bytes.begin(), bytes.end());
  if (all.size() < sizeof(Header) + sizeof(Footer)) return all;
  Header header;
  std::memcpy(&header, all.data(), sizeof(header));
  header.crc = crc_of(Bytes(all).first(offsetof(Header, crc)));
  std::memcpy(all.data(), &header, sizeof(header));
  std::byte* end = all.data() + all.size() - sizeof(Footer);
  Footer footer;
  std::memcpy(&footer, end, sizeof(footer));
  footer.header_crc = header.crc;
  const auto part = [&](std::uint64_t begin, std::uint64_t size) {
    const bool inside = begin <= all.size() && size <= all.size() - begin;
    return inside ? Bytes(all).subspan(begin, size) : Bytes();
  };
  footer.index_crc = crc_of(part(footer.index_offset, 8 * (footer.sequences & 0xFFFF)));
  if (footer.tokens <= data::pds::kBlock && part(footer.checksums_offset, 4).size() == 4) {
    const auto crc = crc_of(part(sizeof(Header), footer.tokens));
    std::memcpy(all.data() + footer.checksums_offset, &crc, sizeof(crc));
    footer.checksums_crc = crc_of(part(footer.checksums_offset, 4));
  }
  std::memcpy(end, &footer, sizeof(footer));
  footer.crc = crc_of(Bytes(all).last(sizeof(Footer)).first(offsetof(Footer, crc)));
  std::memcpy(end, &footer, sizeof(footer));
  return all;
}

int read(Bytes bytes) {
  const MemoryFile file(bytes);
  return accepts(file.path(), [&] {
    const data::PdsFile set(file.path());
    require(set.size() > 0, "a set has a sequence");
    for (std::int64_t i = 0; i < set.size(); ++i) {
      const auto tokens = set.tokens(i);
      require(!tokens.empty() && static_cast<std::int64_t>(tokens.size()) == set.length(i),
              "a sequence is as long as the index says");
      for (const std::uint8_t token : tokens) {
        require(token >= data::alphabet::kFirstLetter && token < data::alphabet::kVocabulary,
                "residues are letters of the alphabet");
      }
    }
  });
}

}  // namespace

int pds(Bytes bytes) {
  const int taken = read(bytes);
  return taken + read(sealed(bytes));
}

}  // namespace performer::fuzz
