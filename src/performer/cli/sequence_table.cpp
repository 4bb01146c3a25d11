#include "performer/cli/sequence_table.h"

#include <fmt/format.h>

#include <cmath>
#include <iterator>

#include "performer/cli/sequence_checks.h"
#include "performer/data/whole_sequences.h"

namespace performer::cli {
namespace {

const std::string& checked(const std::string& path, bool overwrite) {
  check_new_output(path, overwrite);
  return path;
}

}  // namespace

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

SequenceTable::SequenceTable(const std::string& path, bool overwrite)
    : file_(checked(path, overwrite)),
      text_("split\tsequence\tid\tresidues\tleft_out\ttargets\tloss\tperplexity\taccuracy\n") {}

void SequenceTable::begin(const std::string& split, const EvalRows& rows) {
  split_ = escaped_field(split);
  rows_ = &rows;
  scores_.clear();
}

void SequenceTable::add(std::int64_t row, const infer::RowScore& score) {
  const auto place = static_cast<std::size_t>(rows_->sequence_of(row));
  if (place >= scores_.size()) scores_.resize(place + 1);
  auto& sum = scores_[place];
  sum.loss_sum += score.loss_sum;
  sum.correct += score.correct;
  sum.targets += score.targets;
}

void SequenceTable::end(std::int64_t scored) {
  const auto* whole = rows_->samples->whole();
  if (whole != nullptr && whole->count() < std::ssize(scores_)) whole = nullptr;  // blocks of it
  for (std::int64_t i = 0; i < std::ssize(scores_); ++i) {
    const auto& score = scores_[static_cast<std::size_t>(i)];
    if (score.targets == 0) continue;
    const auto targets = static_cast<double>(score.targets);
    const double loss = score.loss_sum / targets;
    const auto of_sequence = whole == nullptr
                                 ? "\t\t"
                                 : fmt::format("{}\t{}\t{}", escaped_field(whole->id(i)),
                                               whole->residues(i), rows_->left_out(i, scored));
    fmt::format_to(std::back_inserter(text_), "{}\t{}\t{}\t{}\t{:.6f}\t{:.4f}\t{:.4f}\n", split_,
                   i + 1, of_sequence, score.targets, loss, std::exp(loss),
                   score.correct / targets);
  }
}

void SequenceTable::write() {
  file_.writer().write(text_);
  file_.commit();
}

}  // namespace performer::cli
