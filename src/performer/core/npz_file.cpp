#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "performer/core/array_formats.h"
#include "performer/core/error.h"
#include "performer/core/zip_writer.h"

namespace performer {
namespace {

constexpr std::size_t kHeaderUnit = 64;                  // a .npy's numbers begin at a multiple
constexpr std::size_t kMostText = std::size_t{1} << 30;  // bytes of all ids, padded

// Version 1.0 of the .npy format: magic, length of the header, a Python dictionary.
std::string npy_header(std::string_view type, const std::vector<std::int64_t>& shape) {
  auto text = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}{}), }}", type,
                          fmt::join(shape, ", "), shape.size() == 1 ? "," : "");
  constexpr std::size_t kBefore = 10;
  text.append(kHeaderUnit - (kBefore + text.size() + 1) % kHeaderUnit, ' ');
  text += '\n';
  std::string header("\x93NUMPY\x01\x00", 8);
  header += static_cast<char>(text.size() & 0xff);
  header += static_cast<char>(text.size() >> 8 & 0xff);
  return header + text;
}

// UTF-8 to code points; ids are checked where they are read, so what is no UTF-8 is taken bytewise.
std::u32string letters_of(const std::string& text) {
  std::u32string letters;
  for (std::size_t i = 0; i < text.size();) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const std::size_t more = byte < 0xc0 ? 0 : byte < 0xe0 ? 1 : byte < 0xf0 ? 2 : 3;
    if (more == 0 || i + more >= text.size()) {
      letters += byte;
      ++i;
      continue;
    }
    char32_t letter = byte & (0x3fU >> more);
    for (std::size_t k = 1; k <= more; ++k) {
      letter = letter << 6 | (static_cast<unsigned char>(text[i + k]) & 0x3fU);
    }
    letters += letter;
    i += more + 1;
  }
  return letters;
}

void add_ids(ZipWriter& zip, const std::string& file, const std::vector<std::string>& ids) {
  std::vector<std::u32string> letters;
  std::size_t width = 1;
  for (const std::string& id : ids)
    width = std::max(width, letters.emplace_back(letters_of(id)).size());
  if (width > kMostText / 4 / std::max<std::size_t>(1, ids.size())) {
    fail(
        ExitCode::kBadInput,
        "{}: an .npz gives all {} ids the room of the longest, {} letters, which is too much; take "
        ".safetensors or .h5",
        file, ids.size(), width);
  }
  const auto header =
      npy_header(fmt::format("<U{}", width), {static_cast<std::int64_t>(ids.size())});
  zip.add("ids.npy", [&](const ZipWriter::TakePiece& take) {
    take(std::as_bytes(std::span(header)));
    for (const std::u32string& id : letters) {
      std::u32string padded = id;
      padded.resize(width, U'\0');
      take(std::as_bytes(std::span(padded)));
    }
  });
}

}  // namespace

void write_npz(FileWriter& out, const ArrayFile& file) {
  ZipWriter zip(out);
  for (const Array& array : file.arrays) {
    const auto header = npy_header(array.type == ArrayType::kFloat32 ? "<f4" : "<i8", array.shape);
    zip.add(array.name + ".npy", [&](const ZipWriter::TakePiece& take) {
      take(std::as_bytes(std::span(header)));
      array.pieces(take);
    });
  }
  add_ids(zip, out.path().string(), file.ids);
  const auto about = about_json(file);
  zip.add("about.json",
          [&](const ZipWriter::TakePiece& take) { take(std::as_bytes(std::span(about))); });
  zip.finish();
}

}  // namespace performer
