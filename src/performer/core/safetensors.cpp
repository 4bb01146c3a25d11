#include "performer/core/safetensors.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "performer/core/error.h"

namespace performer::safetensors {
namespace {

struct DtypeRow {
  std::string_view name;
  std::int64_t bits;
};
// In the order of Dtype.
constexpr std::array<DtypeRow, 22> kDtypes{{
    {"F64", 64},    {"F32", 32},    {"F16", 16},        {"BF16", 16},       {"I64", 64},
    {"I32", 32},    {"I16", 16},    {"I8", 8},          {"U64", 64},        {"U32", 32},
    {"U16", 16},    {"U8", 8},      {"BOOL", 8},        {"C64", 64},        {"F8_E4M3", 8},
    {"F8_E5M2", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"F6_E2M3", 6},
    {"F6_E3M2", 6}, {"F4", 4},
}};

std::int64_t num_bytes(const TensorSpec& spec) {
  return std::accumulate(spec.shape.begin(), spec.shape.end(), bits_of(spec.dtype),
                         std::multiplies<>()) /
         8;
}

// Wider types first.
std::vector<std::size_t> file_order(const std::vector<TensorSpec>& specs) {
  std::vector<std::size_t> order(specs.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return bits_of(specs[a].dtype) > bits_of(specs[b].dtype);
  });
  return order;
}

std::string header_text(const std::vector<TensorSpec>& specs, const Metadata& metadata,
                        const std::vector<std::size_t>& order) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  std::set<std::string> names{"__metadata__"};
  if (!metadata.empty()) {
    header["__metadata__"] = metadata;
  }
  std::int64_t offset = 0;
  // emplace_back instead of [], which would search all names for each one.
  auto& members = header.get_ref<nlohmann::ordered_json::object_t&>();
  members.reserve(members.size() + specs.size());
  for (const std::size_t i : order) {
    const TensorSpec& spec = specs[i];
    if (!names.insert(spec.name).second) {
      fail(ExitCode::kFailure, "safetensors: two tensors are named \"{}\"", spec.name);
    }
    const std::int64_t end = offset + num_bytes(spec);
    nlohmann::ordered_json entry;
    entry["dtype"] = name_of(spec.dtype);
    entry["shape"] = spec.shape;
    entry["data_offsets"] = {offset, end};
    members.emplace_back(spec.name, std::move(entry));
    offset = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

}  // namespace

std::string_view name_of(Dtype dtype) { return kDtypes.at(static_cast<std::size_t>(dtype)).name; }

std::int64_t bits_of(Dtype dtype) { return kDtypes.at(static_cast<std::size_t>(dtype)).bits; }

Reader::Reader(const std::filesystem::path& path, std::int64_t most_header) : file_(path) {
  const std::int64_t size = file_.size();
  std::vector<std::byte> start(static_cast<std::size_t>(std::min<std::int64_t>(size, 8)));
  file_.read(0, start);
  const std::int64_t end = header_end(start, size, path.string());
  if (end - 8 > most_header) {
    fail(ExitCode::kCorrupt, "{}: header of {} bytes; at most {} are allowed here", path.string(),
         end - 8, most_header);
  }
  start.resize(static_cast<std::size_t>(end));
  file_.read(0, start);
  header_ = parse_header(start, size, path.string());
}

void Reader::read(const TensorEntry& tensor, std::span<std::byte> out) const {
  file_.read(header_.data_begin + tensor.begin, out);
}

void Reader::read_part(const TensorEntry& tensor, std::int64_t offset,
                       std::span<std::byte> out) const {
  file_.read(header_.data_begin + tensor.begin + offset, out);
}

void write_pieces(FileWriter& out, const std::vector<TensorSpec>& specs, const Metadata& metadata,
                  const std::function<void(std::size_t, const TakePiece&)>& pieces_of) {
  const auto order = file_order(specs);
  const std::string text = header_text(specs, metadata, order);
  std::array<std::byte, 8> length{};
  for (std::size_t i = 0; i < length.size(); ++i) {
    length[i] = static_cast<std::byte>(text.size() >> (8 * i) & 0xff);
  }
  out.write(length);
  out.write(text);
  for (const std::size_t i : order) {
    const std::int64_t begin = out.bytes();
    pieces_of(i, [&](std::span<const std::byte> piece) { out.write(piece); });
    if (out.bytes() - begin != num_bytes(specs[i])) {
      fail(ExitCode::kFailure, "safetensors: tensor \"{}\" gave {} bytes for a shape of {}",
           specs[i].name, out.bytes() - begin, num_bytes(specs[i]));
    }
  }
}

void write(FileWriter& out, const std::vector<TensorSpec>& specs, const Metadata& metadata,
           const std::function<std::span<const std::byte>(std::size_t)>& bytes_of) {
  write_pieces(out, specs, metadata,
               [&](std::size_t i, const TakePiece& take) { take(bytes_of(i)); });
}

}  // namespace performer::safetensors
