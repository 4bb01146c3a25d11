#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "performer/core/error.h"
#include "performer/core/json.h"
#include "performer/core/safe_text.h"
#include "performer/core/safetensors.h"

namespace performer::safetensors {
namespace {

constexpr std::size_t kMaxRank = 64;
// A tensor takes five values and at least fifty bytes.
constexpr JsonLimits kHeaderLimits{.bytes = kMaxHeader, .depth = 8, .values = kMaxHeader / 8};

std::optional<Dtype> dtype_of(std::string_view name) {
  for (int i = 0; i <= static_cast<int>(Dtype::kF4); ++i) {
    if (name_of(static_cast<Dtype>(i)) == name) {
      return static_cast<Dtype>(i);
    }
  }
  return std::nullopt;
}

// Takes the header's JSON as it is parsed and refuses the first thing that does not belong there:
// no tree of values, no depth.
class HeaderHandler : public JsonEvents {
 public:
  HeaderHandler(const std::string& file, Header& header) : file_(file), header_(header) {}

  void null() override { unexpected("null"); }
  void boolean(bool /*value*/) override { unexpected("a boolean"); }
  void integer(std::int64_t value) override { whole_number(value, value < 0); }
  void large_integer(std::uint64_t /*value*/) override { whole_number(0, true); }
  void number(double /*value*/, const std::string& text) override {
    unexpected("the number " + text);
  }
  void string(std::string value) override;
  void start_object() override;
  void key(std::string name) override;
  void end_object() override;
  void start_array() override;
  void end_array() override;

 private:
  enum class Place : std::uint8_t { kStart, kTop, kMetadata, kTensor, kShape, kOffsets, kEnd };

  [[noreturn]] void unexpected(const std::string& what) const {
    refuse("{} where it does not belong", what);
  }
  void whole_number(std::int64_t value, bool out_of_range);
  void finish_tensor();

  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    const std::string problem = fmt::format(format, std::forward<Args>(args)...);
    if (current_.empty()) {
      fail(ExitCode::kCorrupt, "{}: header: {}", file_, problem);
    }
    fail(ExitCode::kCorrupt, "{}: tensor {}: {}", file_, shown(current_), problem);
  }

  const std::string& file_;
  Header& header_;
  Place place_ = Place::kStart;
  std::string current_;  // the member of the top object that is being read
  std::string field_;    // the member of that
  std::optional<Dtype> dtype_;
  std::optional<std::vector<std::int64_t>> shape_;
  std::optional<std::vector<std::int64_t>> offsets_;
};

void HeaderHandler::whole_number(std::int64_t value, bool out_of_range) {
  const bool shape = place_ == Place::kShape;
  if (!shape && place_ != Place::kOffsets) {
    unexpected("a number");
  }
  if (out_of_range) {
    refuse("a number in {} is out of range", field_);
  }
  auto& list = shape ? *shape_ : *offsets_;
  if (list.size() == (shape ? kMaxRank : 2)) {
    refuse("too many numbers in {}", field_);
  }
  list.push_back(value);
}

void HeaderHandler::string(std::string value) {
  if (place_ == Place::kMetadata) {
    header_.metadata.emplace(field_, std::move(value));
    return;
  }
  if (place_ != Place::kTensor || field_ != "dtype") {
    unexpected("a string");
  }
  dtype_ = dtype_of(value);
  if (!dtype_) {
    refuse("dtype {} is unknown", shown(value));
  }
}

void HeaderHandler::start_object() {
  switch (place_) {
    case Place::kStart:
      place_ = Place::kTop;
      return;
    case Place::kTop:
      place_ = current_ == "__metadata__" ? Place::kMetadata : Place::kTensor;
      dtype_.reset();
      shape_.reset();
      offsets_.reset();
      return;
    default:
      unexpected("an object");
  }
}

void HeaderHandler::key(std::string name) {
  if (place_ == Place::kTop) {
    current_ = std::move(name);
    return;
  }
  field_ = std::move(name);
  const bool tensor = place_ == Place::kTensor;
  if (tensor && field_ != "dtype" && field_ != "shape" && field_ != "data_offsets") {
    refuse("field {} is unknown", shown(field_));
  }
}

void HeaderHandler::start_array() {
  if (place_ == Place::kTensor && field_ == "shape") {
    place_ = Place::kShape;
    shape_.emplace();
  } else if (place_ == Place::kTensor && field_ == "data_offsets") {
    place_ = Place::kOffsets;
    offsets_.emplace();
  } else {
    unexpected("an array");
  }
}

void HeaderHandler::end_array() { place_ = Place::kTensor; }

void HeaderHandler::end_object() {
  if (place_ == Place::kTop) {
    place_ = Place::kEnd;
    return;
  }
  if (place_ == Place::kTensor) {
    finish_tensor();
  }
  place_ = Place::kTop;
  current_.clear();
}

// The number of bits of a shape; nothing when it passes 2^63, also where another dimension is 0.
std::optional<std::int64_t> checked_bits(const std::vector<std::int64_t>& shape, Dtype dtype) {
  std::int64_t product = bits_of(dtype);
  bool empty = false;
  for (const std::int64_t size : shape) {
    empty = empty || size == 0;
    if (size != 0 && __builtin_mul_overflow(product, size, &product)) {
      return std::nullopt;
    }
  }
  return empty ? 0 : product;
}

void HeaderHandler::finish_tensor() {
  if (!dtype_ || !shape_ || !offsets_ || offsets_->size() != 2) {
    refuse("needs dtype, shape and two data_offsets");
  }
  TensorEntry entry;
  entry.name = current_;
  entry.dtype = *dtype_;
  entry.shape = std::move(*shape_);
  entry.begin = (*offsets_)[0];
  entry.end = (*offsets_)[1];
  const auto bits = checked_bits(entry.shape, entry.dtype);
  if (!bits) {
    refuse("shape is larger than any memory");
  }
  if (*bits % 8 != 0) {
    refuse("the {} bits of its shape do not fill whole bytes", *bits);
  }
  if (entry.end < entry.begin || entry.end - entry.begin != *bits / 8) {
    refuse("data_offsets [{}, {}] do not fit the {} bytes of its shape", entry.begin, entry.end,
           *bits / 8);
  }
  header_.tensors.push_back(std::move(entry));
}

// Tensors must cover the bytes after the header exactly.
void check_layout(std::vector<TensorEntry>& tensors, std::int64_t size, const std::string& file) {
  std::sort(tensors.begin(), tensors.end(), [](const TensorEntry& a, const TensorEntry& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  std::int64_t covered = 0;
  for (const TensorEntry& tensor : tensors) {
    if (tensor.begin != covered) {
      fail(ExitCode::kCorrupt, "{}: tensor {}: {} the bytes before it: starts at {}, not {}", file,
           shown(tensor.name), tensor.begin < covered ? "overlaps" : "leaves a hole after",
           tensor.begin, covered);
    }
    if (tensor.end > size) {
      fail(ExitCode::kCorrupt, "{}: tensor {}: ends at byte {} of {}; the file is cut short", file,
           shown(tensor.name), tensor.end, size);
    }
    covered = tensor.end;
  }
  if (covered != size) {
    fail(ExitCode::kCorrupt, "{}: {} bytes follow the last tensor", file, size - covered);
  }
}

}  // namespace

std::int64_t header_end(std::span<const std::byte> start, std::int64_t size,
                        const std::string& file) {
  if (size < 8) {
    fail(ExitCode::kCorrupt, "{}: {} bytes are too few for a safetensors file", file, size);
  }
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < 8; ++i) {
    length |= std::to_integer<std::uint64_t>(start[i]) << (8 * i);
  }
  if (length > static_cast<std::uint64_t>(std::min(size - 8, kMaxHeader))) {
    fail(ExitCode::kCorrupt, "{}: header of {} bytes in a file of {}; at most {} are allowed", file,
         length, size, kMaxHeader);
  }
  return static_cast<std::int64_t>(8 + length);
}

Header parse_header(std::span<const std::byte> start, std::int64_t size, const std::string& file) {
  Header header;
  header.data_begin = header_end(start, size, file);
  const std::string_view text(reinterpret_cast<const char*>(start.data()) + 8,
                              static_cast<std::size_t>(header.data_begin - 8));
  if (!text.starts_with('{')) {
    fail(ExitCode::kCorrupt, "{}: header does not start with {{", file);
  }
  HeaderHandler handler(file, header);
  read_json_events(text, file + ": header", kHeaderLimits, handler);
  check_layout(header.tensors, size - header.data_begin, file);
  return header;
}

}  // namespace performer::safetensors
