#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_set>

#include "performer/core/error.h"
#include "performer/core/safetensors.h"

namespace performer::safetensors {
namespace {

constexpr std::int64_t kMaxHeader = 100'000'000;  // the limit of the reference implementation
constexpr std::size_t kMaxRank = 64;
constexpr auto kMaxInt = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());

std::optional<Dtype> dtype_of(std::string_view name) {
  for (int i = 0; i <= static_cast<int>(Dtype::kBool); ++i) {
    if (name_of(static_cast<Dtype>(i)) == name) {
      return static_cast<Dtype>(i);
    }
  }
  return std::nullopt;
}

// Takes the header's JSON as it is parsed and refuses the first thing that does not belong there:
// no tree of values, no depth, no duplicates. Return values follow nlohmann's SAX interface, true
// to go on; refusals throw.
class HeaderHandler {
 public:
  HeaderHandler(const std::string& file, Header& header) : file_(file), header_(header) {}

  // The interface of nlohmann::json_sax, whose names these are.
  bool null() { return unexpected("null"); }
  bool boolean(bool) { return unexpected("a boolean"); }
  bool number_integer(std::int64_t value) { return number(value, value < 0); }
  bool number_unsigned(std::uint64_t value) {
    return number(static_cast<std::int64_t>(std::min(value, kMaxInt)), value > kMaxInt);
  }
  bool number_float(double, const std::string& text) { return unexpected("the number " + text); }
  bool binary(std::vector<std::uint8_t>&) { return unexpected("binary data"); }
  bool string(std::string& value);
  bool start_object(std::size_t);
  bool key(std::string& name);
  bool end_object();
  bool start_array(std::size_t);
  bool end_array();
  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception&) {
    fail(ExitCode::kCorrupt, "{}: header is not JSON at its byte {}", file_, position);
  }

 private:
  enum class Place : std::uint8_t { kStart, kTop, kMetadata, kTensor, kShape, kOffsets, kEnd };

  bool unexpected(const std::string& what) const { refuse("{} where it does not belong", what); }
  bool number(std::int64_t value, bool out_of_range);
  void finish_tensor();

  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    const std::string problem = fmt::format(format, std::forward<Args>(args)...);
    if (current_.empty()) {
      fail(ExitCode::kCorrupt, "{}: header: {}", file_, problem);
    }
    fail(ExitCode::kCorrupt, "{}: tensor {}: {}", file_, shown_name(current_), problem);
  }

  const std::string& file_;
  Header& header_;
  Place place_ = Place::kStart;
  std::string current_;  // the member of the top object that is being read
  std::string field_;    // the member of that
  std::unordered_set<std::string> names_;
  std::optional<Dtype> dtype_;
  std::optional<std::vector<std::int64_t>> shape_;
  std::optional<std::vector<std::int64_t>> offsets_;
};

bool HeaderHandler::number(std::int64_t value, bool out_of_range) {
  const bool shape = place_ == Place::kShape;
  if (!shape && place_ != Place::kOffsets) {
    return unexpected("a number");
  }
  if (out_of_range) {
    refuse("a number in {} is out of range", field_);
  }
  auto& list = shape ? *shape_ : *offsets_;
  if (list.size() == (shape ? kMaxRank : 2)) {
    refuse("too many numbers in {}", field_);
  }
  list.push_back(value);
  return true;
}

bool HeaderHandler::string(std::string& value) {
  if (place_ == Place::kMetadata) {
    if (!header_.metadata.emplace(field_, std::move(value)).second) {
      refuse("key {} occurs twice", shown_name(field_));
    }
    return true;
  }
  if (place_ != Place::kTensor || field_ != "dtype" || dtype_) {
    return unexpected("a string");
  }
  dtype_ = dtype_of(value);
  if (!dtype_) {
    refuse("dtype {} is unknown", shown_name(value));
  }
  return true;
}

bool HeaderHandler::start_object(std::size_t) {
  switch (place_) {
    case Place::kStart:
      place_ = Place::kTop;
      return true;
    case Place::kTop:
      place_ = current_ == "__metadata__" ? Place::kMetadata : Place::kTensor;
      dtype_.reset();
      shape_.reset();
      offsets_.reset();
      return true;
    default:
      return unexpected("an object");
  }
}

bool HeaderHandler::key(std::string& name) {
  if (place_ == Place::kTop) {
    current_ = name;
    if (!names_.insert(name).second) {
      refuse("name occurs twice");
    }
    return true;
  }
  field_ = name;
  const bool tensor = place_ == Place::kTensor;
  if (tensor && name != "dtype" && name != "shape" && name != "data_offsets") {
    refuse("field {} is unknown", shown_name(name));
  }
  return true;
}

bool HeaderHandler::start_array(std::size_t) {
  if (place_ == Place::kTensor && field_ == "shape" && !shape_) {
    place_ = Place::kShape;
    shape_.emplace();
    return true;
  }
  if (place_ == Place::kTensor && field_ == "data_offsets" && !offsets_) {
    place_ = Place::kOffsets;
    offsets_.emplace();
    return true;
  }
  return unexpected("an array");
}

bool HeaderHandler::end_array() {
  place_ = Place::kTensor;
  return true;
}

bool HeaderHandler::end_object() {
  if (place_ == Place::kTop) {
    place_ = Place::kEnd;
    return true;
  }
  if (place_ == Place::kTensor) {
    finish_tensor();
  }
  place_ = Place::kTop;
  current_.clear();
  return true;
}

// The number of bytes of a shape; nothing when it passes 2^63, also where another dimension is 0.
std::optional<std::int64_t> checked_bytes(const std::vector<std::int64_t>& shape, Dtype dtype) {
  std::int64_t product = size_of(dtype);
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
  const auto bytes = checked_bytes(entry.shape, entry.dtype);
  if (!bytes) {
    refuse("shape is larger than any memory");
  }
  if (entry.end < entry.begin || entry.end - entry.begin != *bytes) {
    refuse("data_offsets [{}, {}] do not fit the {} bytes of its shape", entry.begin, entry.end,
           *bytes);
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
           shown_name(tensor.name), tensor.begin < covered ? "overlaps" : "leaves a hole after",
           tensor.begin, covered);
    }
    if (tensor.end > size) {
      fail(ExitCode::kCorrupt, "{}: tensor {}: ends at byte {} of {}; the file is cut short", file,
           shown_name(tensor.name), tensor.end, size);
    }
    covered = tensor.end;
  }
  if (covered != size) {
    fail(ExitCode::kCorrupt, "{}: {} bytes follow the last tensor", file, size - covered);
  }
}

}  // namespace

std::string shown_name(const std::string& name) {
  constexpr std::size_t kShown = 100;
  const bool cut = name.size() > kShown;
  using Json = nlohmann::json;
  return Json(name.substr(0, kShown)).dump(-1, ' ', true, Json::error_handler_t::replace) +
         (cut ? "..." : "");
}

Header parse_header(std::span<const std::byte> bytes, const std::string& file) {
  const auto size = static_cast<std::int64_t>(bytes.size());
  if (size < 8) {
    fail(ExitCode::kCorrupt, "{}: {} bytes are too few for a safetensors file", file, size);
  }
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < 8; ++i) {
    length |= std::to_integer<std::uint64_t>(bytes[i]) << (8 * i);
  }
  if (length > static_cast<std::uint64_t>(std::min(size - 8, kMaxHeader))) {
    fail(ExitCode::kCorrupt, "{}: header of {} bytes in a file of {}; at most {} are allowed", file,
         length, size, kMaxHeader);
  }
  const auto* text = reinterpret_cast<const char*>(bytes.data()) + 8;
  Header header;
  header.data_begin = static_cast<std::int64_t>(8 + length);
  if (length == 0 || text[0] != '{') {
    fail(ExitCode::kCorrupt, "{}: header does not start with {{", file);
  }
  HeaderHandler handler(file, header);
  nlohmann::json::sax_parse(text, text + length, &handler);
  check_layout(header.tensors, size - header.data_begin, file);
  return header;
}

}  // namespace performer::safetensors
