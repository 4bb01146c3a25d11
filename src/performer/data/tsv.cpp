#include "performer/data/tsv.h"

#include <algorithm>
#include <cstring>

#include "performer/core/error.h"
#include "performer/core/safe_text.h"
#include "performer/data/encoding.h"

namespace performer::data {
namespace {

constexpr std::size_t kMaxLine = std::size_t{1} << 26;
constexpr std::size_t kMaxColumns = 1024;

std::string unescape(std::string_view field) {
  std::string text;
  text.reserve(field.size());
  for (std::size_t i = 0; i < field.size(); ++i) {
    const char next = field[i] == '\\' && i + 1 < field.size() ? field[i + 1] : '\0';
    if (next == 'n' || next == 't' || next == '\\') {
      text += next == 'n' ? '\n' : next == 't' ? '\t' : '\\';
      ++i;
    } else {
      text += field[i];
    }
  }
  return text;
}

// At most `most` fields: a line of tabs alone would take a hundred times its size.
bool split_fields(std::string_view line, std::size_t most, std::vector<std::string>& fields) {
  fields.clear();
  for (std::size_t begin = 0; fields.size() < most;) {
    const std::size_t end = line.find('\t', begin);
    fields.push_back(unescape(line.substr(begin, end - begin)));
    if (end == std::string_view::npos) return true;
    begin = end + 1;
  }
  return false;
}

}  // namespace

TsvReader::TsvReader(const std::string& path, std::int64_t max_rows, std::int64_t max_bytes)
    : source_(path), room_(max_bytes), max_rows_(max_rows) {
  std::string header;
  if (!next_line(header)) {
    fail(ExitCode::kBadInput, "{}: empty; its first line must name the columns", name());
  }
  if (!split_fields(header, kMaxColumns, columns_)) {
    fail(ExitCode::kBadInput, "{}: more than {} columns; is this a table with a header line?",
         name(), kMaxColumns);
  }
}

bool TsvReader::next_line(std::string& text) {
  text.clear();
  for (;;) {
    if (rest_.empty()) rest_ = source_.next();
    if (rest_.empty()) {
      if (text.empty()) return false;
      break;
    }
    const auto* end = static_cast<const char*>(std::memchr(rest_.data(), '\n', rest_.size()));
    const auto size = end == nullptr ? rest_.size() : static_cast<std::size_t>(end - rest_.data());
    if (text.size() + size > kMaxLine) {
      fail(ExitCode::kBadInput, "{}:{}: a line of more than {} bytes", name(), line_ + 1, kMaxLine);
    }
    room_ -= static_cast<std::int64_t>(size);
    if (room_ < 0) {
      fail(ExitCode::kBadInput,
           "{}:{}: more text than is held in memory; leave out the columns that are not needed",
           name(), line_ + 1);
    }
    text.append(rest_.data(), size);
    rest_ = rest_.subspan(std::min(size + 1, rest_.size()));
    if (end != nullptr) break;
  }
  ++line_;
  if (!text.empty() && text.back() == '\r') text.pop_back();
  check_utf8(text, fmt::format("{}:{}", name(), line_));
  return true;
}

bool TsvReader::next(std::vector<std::string>& fields) {
  std::string line;
  do {
    if (!next_line(line)) return false;
  } while (line.empty());
  if (++rows_ > max_rows_) {
    fail(ExitCode::kBadInput, "{}:{}: more than {} rows, too many to hold in memory", name(), line_,
         max_rows_);
  }
  const bool whole = split_fields(line, columns_.size(), fields);
  if (!whole || fields.size() != columns_.size()) {
    fail(ExitCode::kBadInput, "{}:{}: {} fields, the header has {}", name(), line_,
         1 + std::ranges::count(line, '\t'), columns_.size());
  }
  return true;
}

std::int64_t TsvReader::find(std::string_view column) const {
  const auto found = std::ranges::find(columns_, column);
  return found == columns_.end() ? -1 : found - columns_.begin();
}

std::size_t TsvReader::at(std::string_view column) const {
  const std::int64_t place = find(column);
  if (place >= 0) return static_cast<std::size_t>(place);
  std::string all;
  for (const auto& name : columns_) all += (all.empty() ? "" : ", ") + shown(name);
  fail(ExitCode::kBadInput, "{}: has no column {}; its columns are {}", name(), shown(column), all);
}

}  // namespace performer::data
