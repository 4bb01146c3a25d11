#include "performer/cli/mutation_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "performer/core/error.h"
#include "performer/core/safe_text.h"
#include "performer/data/byte_source.h"

namespace performer::cli {
namespace {

constexpr std::int64_t kMostBytes = std::int64_t{1} << 31;

// The field at the beginning of `rest`, which loses it and the separator behind it.
std::string take_field(std::string_view& rest, char separator, const std::string& where) {
  std::string field;
  if (rest.starts_with('"')) {
    rest.remove_prefix(1);
    for (;;) {
      const auto quote = rest.find('"');
      if (quote == std::string_view::npos) {
        fail(ExitCode::kBadInput, "{}: a quote is opened and not closed", where);
      }
      field += rest.substr(0, quote);
      rest.remove_prefix(quote + 1);
      if (!rest.starts_with('"')) break;
      field += '"';
      rest.remove_prefix(1);
    }
  }
  const auto end = std::min(rest.find(separator), rest.size());
  field += rest.substr(0, end);
  rest.remove_prefix(end);
  return field;
}

std::vector<std::string> fields_of(std::string_view line, char separator,
                                   const std::string& where) {
  std::vector<std::string> fields = {take_field(line, separator, where)};
  while (!line.empty()) {
    line.remove_prefix(1);
    fields.push_back(take_field(line, separator, where));
  }
  return fields;
}

std::int64_t find(const std::vector<std::string>& columns, std::string_view name) {
  const auto found = std::ranges::find(columns, name);
  return found == columns.end() ? -1 : found - columns.begin();
}

struct Columns {
  char separator = ',';
  std::size_t count = 0;
  std::int64_t mutant = -1, id = -1;
};

Columns read_header(std::string_view line, const std::string& where) {
  Columns columns;
  if (line.find('\t') != std::string_view::npos) columns.separator = '\t';
  const auto names = fields_of(line, columns.separator, where);
  columns.count = names.size();
  columns.mutant = std::max(find(names, "mutant"), find(names, "mutation"));
  columns.id = find(names, "id");
  if (columns.mutant < 0) {
    fail(ExitCode::kBadInput,
         "{}: a header with a column mutant (A24G, A24G:K30R) is needed, and id where there are "
         "several sequences; got {}",
         where, shown(fmt::format("{}", fmt::join(names, ", "))));
  }
  return columns;
}

}  // namespace

std::string MutationTable::where(const MutationLine& line) const {
  return fmt::format("{}:{}", name, line.line);
}

MutationTable read_mutations(const std::string& path) {
  MutationTable table{path, false, {}};
  const std::string text = data::read_all(path, kMostBytes);
  std::string_view rest = text;
  Columns columns;
  for (std::int64_t number = 1; !rest.empty(); ++number) {
    const auto end = std::min(rest.find('\n'), rest.size());
    auto line = rest.substr(0, end);
    rest.remove_prefix(std::min(rest.size(), end + 1));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    const auto where = fmt::format("{}:{}", path, number);
    if (columns.count == 0) {
      columns = read_header(line, where);
      table.has_ids = columns.id >= 0;
      continue;
    }
    auto fields = fields_of(line, columns.separator, where);
    if (fields.size() != columns.count) {
      fail(ExitCode::kBadInput, "{}: {} fields, the header has {}", where, fields.size(),
           columns.count);
    }
    const auto field = [&](std::int64_t i) {
      return i < 0 ? std::string() : std::move(fields[static_cast<std::size_t>(i)]);
    };
    table.lines.push_back({number, field(columns.id), field(columns.mutant)});
  }
  if (table.lines.empty()) fail(ExitCode::kBadInput, "{}: holds no mutation", path);
  return table;
}

}  // namespace performer::cli
