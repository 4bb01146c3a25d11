#include "performer/data/labelled.h"

#include <algorithm>
#include <functional>
#include <set>
#include <unordered_map>
#include <utility>

#include "performer/core/error.h"
#include "performer/core/safe_text.h"
#include "performer/data/content_hash.h"
#include "performer/data/split_sources.h"
#include "performer/data/text.h"
#include "performer/data/tsv.h"

namespace performer::data {
namespace {

using Fields = std::vector<std::string>;

constexpr std::int64_t kMaxTokens = std::int64_t{1} << 29, kMaxRows = TsvReader::kMaxRows;
constexpr std::size_t kMaxClasses = std::size_t{1} << 16, kMaxClassBytes = 4096;

// The first `length` tokens of each document, one after the other.
class Documents {
 public:
  Documents(const TokenSpace& space, std::int64_t length) : space_(space), length_(length) {}

  std::int64_t add(const std::string& text) {
    if (space_.bos >= 0) tokens_.push_back(static_cast<std::int32_t>(space_.bos));
    // What lies far behind the cut need not be encoded; no token is shorter than a byte.
    const std::string_view whole = text;
    const auto limit = space_.kind == "bytes" ? static_cast<std::size_t>(length_) : whole.size();
    for (std::string_view rest = whole.substr(0, limit); !rest.empty() && room() > 0;) {
      const std::string_view part = first_lines(rest);
      for (const std::int64_t token : space_.encode(part)) {
        if (room() > 0) tokens_.push_back(static_cast<std::int32_t>(token));
      }
      rest.remove_prefix(part.size());
    }
    ends_.push_back(std::ssize(tokens_));
    return std::ssize(ends_) - 2;
  }

  // Left in the document that is being added.
  std::int64_t room() const { return length_ - (std::ssize(tokens_) - ends_.back()); }

  std::int64_t tokens() const { return std::ssize(tokens_); }

  std::int64_t read(std::int64_t index, std::span<std::int64_t> out) const {
    const std::int64_t begin = ends_[static_cast<std::size_t>(index)];
    const std::int64_t count = ends_[static_cast<std::size_t>(index) + 1] - begin;
    std::copy_n(tokens_.begin() + begin, count, out.begin());
    return count;
  }

 private:
  const TokenSpace& space_;
  std::int64_t length_;
  std::vector<std::int32_t> tokens_;
  std::vector<std::int64_t> ends_ = {0};
};

// Calls `take` with each row of the split.
void for_rows(const DataConfig& config, Split split,
              const std::function<void(TsvReader&, const Fields&)>& take) {
  const bool marked = place_of(config, split).marked;
  for (const auto& file : files_of(config, split)) {
    TsvReader reader(file);
    const std::int64_t column = marked ? reader.find("split") : -1;
    if (marked && column < 0 && split != Split::kTrain) {
      fail(ExitCode::kUsage, "data.{}: no file is named, and {} has no column 'split'",
           name_of(split), reader.name());
    }
    Fields fields;
    while (reader.next(fields)) {
      if (column < 0 || fields[static_cast<std::size_t>(column)] == name_of(split))
        take(reader, fields);
    }
  }
}

class LabelledDataset final : public Dataset {
 public:
  LabelledDataset(const DataConfig& config, Split split, const TokenSpace& space)
      : Dataset(config, space), documents_(this->space(), length()) {
    if (pairs() && !config.documents.empty()) read_documents();
    for_rows(config, split,
             [this](TsvReader& reader, const Fields& fields) { add(reader, fields); });
    if (rows_.empty()) {
      fail(ExitCode::kBadInput, "{}: there is no row of split {} in it",
           to_string(place_of(config, split).paths), name_of(split));
    }
  }

  std::int64_t size() const override { return std::ssize(rows_); }
  Target target() const override { return pairs() ? Target::kPairClass : Target::kClass; }

  RowInfo fill(const SampleKey& key, const Row& row) const override {
    const Entry& entry = rows_[static_cast<std::size_t>(key.sample)];
    RowInfo info{
        .length = documents_.read(entry.a, row.tokens), .targets = 1, .label = entry.label};
    if (pairs()) info.length_b = documents_.read(entry.b, row.tokens_b);
    return info;
  }

 private:
  struct Entry {
    std::int64_t label, a, b;
  };

  bool pairs() const { return config().task == "match"; }

  void read_documents() {
    TsvReader reader(config().documents);
    const std::size_t id = reader.at("id"), text = reader.at(config().text_column);
    Fields fields;
    while (reader.next(fields)) {
      by_id_.insert_or_assign(content_hash(fields[id]), documents_.add(fields[text]));
      check_room(reader);
    }
  }

  void check_room(const TsvReader& reader) const {
    if (documents_.tokens() <= kMaxTokens && std::ssize(rows_) <= kMaxRows &&
        std::ssize(by_id_) <= kMaxRows) {
      return;
    }
    fail(ExitCode::kBadInput, "{}:{}: more than {} tokens or {} rows, too many to hold in memory",
         reader.name(), reader.line(), kMaxTokens, kMaxRows);
  }

  std::int64_t document(const TsvReader& reader, const std::string& field) {
    if (config().documents.empty()) return documents_.add(field);
    const auto found = by_id_.find(content_hash(field));
    if (found == by_id_.end()) {
      fail(ExitCode::kBadInput, "{}:{}: document {} is not in {}", reader.name(), reader.line(),
           shown(field), config().documents);
    }
    return found->second;
  }

  void add(const TsvReader& reader, const Fields& fields) {
    const auto& classes = space().classes;
    const std::string& label = fields[reader.at(config().label_column)];
    const auto found = std::ranges::lower_bound(classes, label);
    if (found == classes.end() || *found != label) {
      fail(ExitCode::kBadInput, "{}:{}: class {} does not occur in the training rows",
           reader.name(), reader.line(), shown(label));
    }
    Entry entry{.label = found - classes.begin(), .a = 0, .b = 0};
    if (pairs()) {
      entry.a = document(reader, fields[reader.at(config().a_column)]);
      entry.b = document(reader, fields[reader.at(config().b_column)]);
    } else {
      entry.a = documents_.add(fields[reader.at(config().text_column)]);
    }
    rows_.push_back(entry);
    check_room(reader);
  }

  Documents documents_;
  std::unordered_map<ContentHash, std::int64_t, ContentHashHasher> by_id_;
  std::vector<Entry> rows_;
};

}  // namespace

std::unique_ptr<Dataset> open_labelled(const DataConfig& config, Split split,
                                       const TokenSpace& space) {
  return std::make_unique<LabelledDataset>(config, split, space);
}

bool has_labelled_split(const DataConfig& config, Split split) {
  bool every_row_trains = true;
  for (const auto& file : files_of(config, split)) {
    TsvReader reader(file);
    const std::int64_t column = reader.find("split");
    if (column < 0) continue;
    every_row_trains = false;
    Fields fields;
    while (reader.next(fields)) {
      if (fields[static_cast<std::size_t>(column)] == name_of(split)) return true;
    }
  }
  return every_row_trains && split == Split::kTrain;
}

TokenSpace labelled_space(const DataConfig& config) {
  TokenSpace space = text_space(config);
  std::set<std::string> classes;
  for_rows(config, Split::kTrain, [&](TsvReader& reader, const Fields& fields) {
    const std::string& label = fields[reader.at(config.label_column)];
    if (label.size() > kMaxClassBytes) {
      fail(ExitCode::kBadInput, "{}:{}: a class of {} bytes; is data.label_column = {} right?",
           reader.name(), reader.line(), label.size(), shown(config.label_column));
    }
    classes.insert(label);
    if (classes.size() > kMaxClasses) {
      fail(ExitCode::kBadInput, "{}:{}: more than {} classes; is data.label_column = {} right?",
           reader.name(), reader.line(), kMaxClasses, shown(config.label_column));
    }
  });
  space.classes.assign(classes.begin(), classes.end());
  if (classes.size() < 2) {
    fail(ExitCode::kBadInput, "{}: {} classes in column '{}' of the training rows, two are needed",
         to_string(config.train), classes.size(), config.label_column);
  }
  return space;
}

}  // namespace performer::data
