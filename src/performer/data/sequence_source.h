#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "performer/data/fasta.h"

namespace performer::data {

/// Sequences of one-byte tokens by number, in memory or mapped. Reading is safe from many threads.
class SequenceSource {
 public:
  virtual ~SequenceSource() = default;
  virtual std::int64_t size() const = 0;
  virtual std::int64_t length(std::int64_t index) const = 0;
  virtual std::span<const std::uint8_t> tokens(std::int64_t index) const = 0;

 protected:
  SequenceSource() = default;
  SequenceSource(const SequenceSource&) = default;
  SequenceSource& operator=(const SequenceSource&) = default;
};

/// Sequences one after the other in one piece of memory.
class MemorySequences final : public SequenceSource {
 public:
  void add(std::span<const std::uint8_t> tokens);

  std::int64_t size() const override { return static_cast<std::int64_t>(ends_.size()) - 1; }
  std::int64_t length(std::int64_t index) const override;
  std::span<const std::uint8_t> tokens(std::int64_t index) const override;
  std::int64_t total() const { return ends_.back(); }

 private:
  std::vector<std::uint8_t> tokens_;
  std::vector<std::int64_t> ends_ = {0};
};

struct FastaOptions {
  bool deduplicate = false;
  /// Keeps the records whose id passes; empty: all.
  std::function<bool(const std::string& id)> keep;
  std::int64_t max_residues = std::int64_t{1} << 30;
};

struct FastaContent {
  std::unique_ptr<MemorySequences> sequences;
  FastaCounts counts;
};

/// A whole FASTA file. kBadInput above max_residues (naming `performer data build`) and where it
/// holds no sequence at all.
FastaContent read_fasta(const std::string& path, const FastaOptions& options = {});

}  // namespace performer::data
