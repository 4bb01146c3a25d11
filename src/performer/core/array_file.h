#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

/// Results as arrays in one file that numpy, safetensors or HDF5 read.
namespace performer {

enum class ArrayFormat : std::uint8_t { kNpz, kSafetensors, kHdf5 };

/// By the ending .npz, .safetensors, .h5 or .hdf5; kUsage for others, and where HDF5 is asked for
/// and its library is not there.
ArrayFormat array_format_of(const std::filesystem::path& path);

enum class ArrayType : std::uint8_t { kFloat32, kInt64 };

using TakePiece = std::function<void(std::span<const std::byte>)>;

struct Array {
  std::string name;
  ArrayType type = ArrayType::kFloat32;
  std::vector<std::int64_t> shape;
  /// Hands the numbers, C order, in pieces of whole rows, to what it is given; may be called twice.
  std::function<void(const TakePiece&)> pieces;
};

struct ArrayFile {
  std::vector<Array> arrays;
  /// `ids`: strings of any letters, as data: never a name in the file.
  std::vector<std::string> ids;
  /// What the arrays are: metadata of safetensors, `about.json` in an .npz, an attribute in HDF5.
  std::map<std::string, std::string> about;
};

/// The file appears complete, or not at all.
///   .npz          the arrays; ids as numpy strings; about.json
///   .safetensors  the arrays; ids as `ids` (U8, one after the other) and `id_ends` (I64)
///   .h5           the arrays; ids as UTF-8 strings; the attribute `about`
void write_arrays(const std::filesystem::path& path, const ArrayFile& file);

}  // namespace performer
