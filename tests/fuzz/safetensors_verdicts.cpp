#include <array>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <span>
#include <string>

#include "performer/core/error.h"
#include "performer/core/safetensors.h"

/// What this tree's reader says of safetensors files, for tests/attack/test_safetensors.py. Each file
/// comes on standard input, behind 8 bytes of its size (little endian); each gives a line: "taken",
/// or why it is refused.
int main() {
  std::ios::sync_with_stdio(false);
  std::array<unsigned char, 8> size{};
  while (std::cin.read(reinterpret_cast<char*>(size.data()), size.size())) {
    std::uint64_t length = 0;
    for (std::size_t i = 0; i < size.size(); ++i) length |= std::uint64_t{size[i]} << (8 * i);
    std::string file(length, '\0');
    if (!std::cin.read(file.data(), std::ssize(file))) return 1;
    try {
      performer::safetensors::parse_header(std::as_bytes(std::span(file)), std::ssize(file),
                                           "file");
      std::cout << "taken\n";
    } catch (const performer::Error& error) {
      std::cout << error.what() << '\n';
    }
  }
  return std::cin.gcount() == 0 ? 0 : 1;
}
