#include "performer/train/metrics_log.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

namespace performer::train {
namespace {

enum class Line : std::uint8_t { kKept, kNewer, kDamaged };

Line judge(const std::string& text, std::int64_t last_step) {
  const auto record = nlohmann::json::parse(text, nullptr, false);
  if (!record.is_object() || !record.contains("step") || !record["step"].is_number_integer()) {
    return Line::kDamaged;
  }
  return record["step"].get<std::int64_t>() <= last_step ? Line::kKept : Line::kNewer;
}

// Where the last line to keep ends. A damaged line stays if good ones follow it: history is not
// thrown away for it.
std::int64_t end_of_kept(const std::filesystem::path& path, std::int64_t last_step) {
  std::ifstream file(path, std::ios::binary);
  std::string line;
  std::int64_t end = 0;
  std::int64_t kept = 0;
  // A line that reaches the end of the file has no newline: it was cut short.
  while (std::getline(file, line) && !file.eof()) {
    end += static_cast<std::int64_t>(line.size()) + 1;
    const Line verdict = judge(line, last_step);
    if (verdict == Line::kNewer) {
      break;
    }
    if (verdict == Line::kKept) {
      kept = end;
    }
  }
  return kept;
}

}  // namespace

MetricsLog::MetricsLog(const std::filesystem::path& path, std::int64_t last_step,
                       AppendFile::Warn warn)
    : file_(path, std::move(warn)) {
  cut_after(last_step);
}

void MetricsLog::append(const nlohmann::ordered_json& record) {
  file_.append(record.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) +
               "\n");
}

void MetricsLog::cut_after(std::int64_t step) {
  const std::int64_t kept = end_of_kept(file_.path(), step);
  if (kept != file_.size()) {
    file_.cut(kept);
  }
}

}  // namespace performer::train
