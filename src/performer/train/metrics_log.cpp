#include "performer/train/metrics_log.h"

#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "performer/core/crc32c.h"
#include "performer/core/error.h"
#include "performer/core/json.h"

namespace performer::train {
namespace {

constexpr std::string_view kBegin = R"({"step":)";
constexpr std::size_t kMaxLine = 16 << 20;

std::string check_text(std::string_view object) {
  return fmt::format(R"(,"crc32c":"{:08x}"}})", crc32c(object));
}

// {"step":1,"loss":2} -> {"step":1,"loss":2,"crc32c":"..."}: the check is of the text before.
std::string sealed(const std::string& object) {
  return object.substr(0, object.size() - 1) + check_text(object);
}

bool intact(std::string_view line) {
  const auto length = check_text("").size();
  if (line.size() < length) return false;
  const auto body = std::string(line.substr(0, line.size() - length)) + "}";
  return line.substr(line.size() - length) == check_text(body);
}

std::optional<std::int64_t> step_of(std::string_view line) {
  if (!line.starts_with(kBegin)) return {};
  std::int64_t step = 0;
  const auto rest = line.substr(kBegin.size());
  const auto result = std::from_chars(rest.data(), rest.data() + rest.size(), step);
  return result.ec == std::errc() ? std::optional(step) : std::nullopt;
}

// What an older file holds for a run that goes on after `last_step`.
class Scan {
 public:
  explicit Scan(std::int64_t last_step) : last_step_(last_step) {}

  /// False from the first line on that is newer for sure.
  bool take(std::string_view line) {
    ++number_;
    end_ += static_cast<std::int64_t>(line.size()) + 1;
    const auto step = step_of(line);
    const bool good = step && intact(line);
    if (good && *step > last_step_) return false;
    if (!good) {
      if (damaged_++ == 0) first_damaged_ = number_;
    } else if (line.find(R"("tokens_per_second":)") != line.npos) {
      training_line_ = line;
    }
    // The step of a damaged line is a guess, and good enough to keep the line.
    if (step && *step <= last_step_) {
      kept_ = end_;
      kept_lines_ = number_;
      damaged_kept_ = damaged_;
    }
    return true;
  }

  std::int64_t kept_bytes() const { return kept_; }
  std::int64_t kept_lines() const { return kept_lines_; }

  double seconds() const {
    const auto record = try_parse_json(training_line_);
    const bool told = record && record->is_object() && record->contains("seconds") &&
                      record->at("seconds").is_number();
    return told ? record->at("seconds").get<double>() : 0.0;
  }

  void tell(const std::filesystem::path& path, const AppendFile::Warn& warn) const {
    if (damaged_ == 0) return;
    const auto gone = damaged_ - damaged_kept_;
    std::string rest = "nothing is removed";
    if (gone > 0) {
      rest = fmt::format("of these the last {} removed",
                         gone == 1 ? "one is" : fmt::format("{} are", gone));
    }
    warn(fmt::format("{}:{}: damaged: the line does not match its own check{}; {}", path.string(),
                     first_damaged_,
                     damaged_ > 1 ? fmt::format(", nor do {} more", damaged_ - 1) : "", rest));
  }

 private:
  std::int64_t last_step_;
  std::int64_t number_ = 0, end_ = 0, kept_ = 0, kept_lines_ = 0;
  std::int64_t damaged_ = 0, damaged_kept_ = 0, first_damaged_ = 0;
  std::string training_line_;
};

// A line that reaches the end of the file has no newline: it was cut short.
Scan scan(const std::filesystem::path& path, std::int64_t last_step) {
  Scan scan(last_step);
  std::string line;
  bool more = true;
  read_pieces(path, [&](std::span<const std::byte> piece) {
    for (const auto byte : piece) {
      if (!more) return;
      const auto c = static_cast<char>(byte);
      if (c == '\n') {
        more = scan.take(line);
        line.clear();
      } else {
        if (line.size() == kMaxLine) {
          fail(ExitCode::kCorrupt,
               "{}: has a line of over {} bytes, as no run writes; move it away", path.string(),
               kMaxLine);
        }
        line += c;
      }
    }
  });
  return scan;
}

}  // namespace

MetricsLog::MetricsLog(const std::filesystem::path& path, std::int64_t last_step,
                       const AppendFile::Warn& warn)
    : file_(path, warn) {
  const auto found = scan(path, last_step);
  if (last_step >= 0) found.tell(path, warn);
  seconds_ = found.seconds();
  num_lines_ = found.kept_lines();
  if (found.kept_bytes() != file_.size()) file_.cut(found.kept_bytes());
}

void MetricsLog::append(const nlohmann::ordered_json& record) {
  const auto replace = nlohmann::ordered_json::error_handler_t::replace;
  if (file_.append(sealed(record.dump(-1, ' ', false, replace)) + "\n")) ++num_lines_;
}

void MetricsLog::cut_after(std::int64_t step) {
  const auto found = scan(file_.path(), step);
  num_lines_ = found.kept_lines();
  if (found.kept_bytes() != file_.size()) file_.cut(found.kept_bytes());
}

}  // namespace performer::train
