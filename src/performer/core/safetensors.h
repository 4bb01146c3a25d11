#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "performer/core/file.h"
#include "performer/core/random_access_file.h"

/// The safetensors format: 8 bytes of header length (little endian), a JSON header, the tensors'
/// bytes (C order, little endian) without holes. Files come from others: the reader believes
/// nothing and allocates only for what the file's own size allows.
namespace performer::safetensors {

enum class Dtype : std::uint8_t {
  kF64,
  kF32,
  kF16,
  kBF16,
  kI64,
  kI32,
  kI16,
  kI8,
  kU64,
  kU32,
  kU16,
  kU8,
  kBool,
  kC64,
  kF8E4M3,
  kF8E5M2,
  kF8E8M0,
  kF8E4M3Fnuz,
  kF8E5M2Fnuz,
  kF6E2M3,
  kF6E3M2,
  kF4,
};

std::string_view name_of(Dtype dtype);
std::int64_t bits_of(Dtype dtype);

struct TensorSpec {
  std::string name;
  Dtype dtype = Dtype::kF32;
  std::vector<std::int64_t> shape;
};

struct TensorEntry : TensorSpec {
  std::int64_t begin = 0;  // first byte, counted from the end of the header
  std::int64_t end = 0;
};

using Metadata = std::map<std::string, std::string>;

struct Header {
  std::vector<TensorEntry> tensors;  // in the order of their bytes
  Metadata metadata;
  std::int64_t data_begin = 0;  // where the header ends in the file
};

/// The limit of the reference implementation.
inline constexpr std::int64_t kMaxHeader = 100'000'000;

/// Where the header ends in a file of `size` bytes, by the first eight of them, or all it has;
/// `file` names it in errors (kCorrupt).
std::int64_t header_end(std::span<const std::byte> start, std::int64_t size,
                        const std::string& file);

/// Reads and checks a header. `start` holds the file's bytes up to the header's end, or more.
Header parse_header(std::span<const std::byte> start, std::int64_t size, const std::string& file);

/// A file with a checked header. It may be cut short or overwritten meanwhile: RandomAccessFile
/// says what happens then.
class Reader {
 public:
  /// kCorrupt for a header of more than `most_header` bytes, which sizes what is kept of it.
  explicit Reader(const std::filesystem::path& path, std::int64_t most_header = kMaxHeader);

  const std::vector<TensorEntry>& tensors() const { return header_.tensors; }
  const Metadata& metadata() const { return header_.metadata; }
  /// Fills `out`, which is as long as the tensor.
  void read(const TensorEntry& tensor, std::span<std::byte> out) const;
  /// Fills `out` from byte `offset` of the tensor on; it has that many.
  void read_part(const TensorEntry& tensor, std::int64_t offset, std::span<std::byte> out) const;

 private:
  RandomAccessFile file_;
  Header header_;
};

/// Writes all tensors. `bytes_of(i)` gives the bytes of specs[i]; it is called once per tensor, and
/// its bytes must last until the next call, so that one tensor at a time needs to be in memory.
/// Wider types come first, else the order is kept: every tensor is aligned, and the same tensors
/// give the same bytes.
void write(FileWriter& out, const std::vector<TensorSpec>& specs, const Metadata& metadata,
           const std::function<std::span<const std::byte>(std::size_t)>& bytes_of);

/// The same for tensors that come in pieces: `pieces_of(i, take)` hands those of specs[i] to `take`,
/// one after the other.
using TakePiece = std::function<void(std::span<const std::byte>)>;
void write_pieces(FileWriter& out, const std::vector<TensorSpec>& specs, const Metadata& metadata,
                  const std::function<void(std::size_t, const TakePiece&)>& pieces_of);

}  // namespace performer::safetensors
