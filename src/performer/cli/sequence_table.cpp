#include "performer/cli/sequence_table.h"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <iterator>
#include <utility>

#include "performer/core/error.h"
#include "performer/core/file.h"
#include "performer/data/whole_sequences.h"

namespace performer::cli {

std::string escaped_field(const std::string& id) {
  std::string text;
  text.reserve(id.size());
  for (const char c : id) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\t') {
      text += "\\t";
    } else if (c == '\n') {
      text += "\\n";
    } else if (c == '\\') {
      text += "\\\\";
    } else if (byte < 0x20 || byte == 0x7f) {
      text += fmt::format("\\x{:02x}", byte);
    } else {
      text += c;
    }
  }
  return text;
}

SequenceTable::SequenceTable(std::string path, bool overwrite)
    : path_(std::move(path)),
      text_("split\tsequence\tid\tresidues\ttargets\tloss\tperplexity\taccuracy\n") {
  if (std::filesystem::exists(path_) && !overwrite) {
    fail(ExitCode::kUsage, "{}: is there already; name another file, or --overwrite it", path_);
  }
}

void SequenceTable::begin(const std::string& split, const data::Dataset& rows) {
  split_ = split;
  rows_ = &rows;
  scores_.clear();
}

void SequenceTable::add(std::int64_t sequence, const train::RowScore& score) {
  const auto place = static_cast<std::size_t>(sequence);
  if (place >= scores_.size()) scores_.resize(place + 1);
  auto& sum = scores_[place];
  sum.loss_sum += score.loss_sum;
  sum.correct += score.correct;
  sum.targets += score.targets;
}

void SequenceTable::end() {
  const auto* whole = rows_->whole();
  if (whole != nullptr && whole->count() < std::ssize(scores_)) whole = nullptr;  // blocks of it
  for (std::int64_t i = 0; i < std::ssize(scores_); ++i) {
    const auto& score = scores_[static_cast<std::size_t>(i)];
    if (score.targets == 0) continue;
    const auto targets = static_cast<double>(score.targets);
    const double loss = score.loss_sum / targets;
    fmt::format_to(std::back_inserter(text_), "{}\t{}\t{}\t{}\t{}\t{:.6f}\t{:.4f}\t{:.4f}\n",
                   split_, i + 1, whole == nullptr ? "" : escaped_field(whole->id(i)),
                   whole == nullptr ? "" : std::to_string(whole->residues(i)), score.targets, loss,
                   std::exp(loss), score.correct / targets);
  }
}

void SequenceTable::write() const { write_file_atomic(path_, text_); }

}  // namespace performer::cli
