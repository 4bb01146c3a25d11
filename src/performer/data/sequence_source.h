#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "performer/data/fasta_counts.h"

namespace performer::data {

/// Sequences of one-byte tokens by number, in memory or in a file. Reading is safe from many
/// threads.
class SequenceSource {
 public:
  virtual ~SequenceSource() = default;
  virtual std::int64_t size() const = 0;
  virtual std::int64_t length(std::int64_t index) const = 0;
  /// Fills `out` with the sequence's tokens from `begin` on; begin + out.size() at most length().
  virtual void read(std::int64_t index, std::int64_t begin, std::span<std::uint8_t> out) const = 0;

  /// All tokens of a sequence.
  std::vector<std::uint8_t> tokens(std::int64_t index) const;
  /// First word of the record's header; empty where ids are not kept.
  virtual std::string id(std::int64_t /*index*/) const { return {}; }
  /// What was met while reading; nothing where it is not known.
  virtual FastaCounts counts() const { return {}; }

 protected:
  SequenceSource() = default;
  SequenceSource(const SequenceSource&) = default;
  SequenceSource& operator=(const SequenceSource&) = default;
};

/// Sequences one after the other in one piece of memory.
class MemorySequences final : public SequenceSource {
 public:
  void add(std::span<const std::uint8_t> tokens);
  /// The id of the sequence that was added last.
  void add_id(std::string id) { ids_.push_back(std::move(id)); }

  std::int64_t size() const override { return static_cast<std::int64_t>(ends_.size()) - 1; }
  std::int64_t length(std::int64_t index) const override;
  void read(std::int64_t index, std::int64_t begin, std::span<std::uint8_t> out) const override;
  std::string id(std::int64_t index) const override;
  FastaCounts counts() const override { return counts_; }
  void set_counts(const FastaCounts& counts) { counts_ = counts; }
  std::int64_t total() const { return ends_.back(); }

 private:
  std::vector<std::uint8_t> tokens_;
  std::vector<std::int64_t> ends_ = {0};
  std::vector<std::string> ids_;  // empty, or one a sequence
  FastaCounts counts_;
};

/// Several sources, one after the other.
class JoinedSequences final : public SequenceSource {
 public:
  explicit JoinedSequences(std::vector<std::unique_ptr<SequenceSource>> parts);

  std::int64_t size() const override { return ends_.back(); }
  std::int64_t length(std::int64_t index) const override;
  void read(std::int64_t index, std::int64_t begin, std::span<std::uint8_t> out) const override;
  std::string id(std::int64_t index) const override;
  FastaCounts counts() const override;

 private:
  struct Place {
    const SequenceSource& part;
    std::int64_t index;
  };
  Place place_of(std::int64_t index) const;

  std::vector<std::unique_ptr<SequenceSource>> parts_;
  std::vector<std::int64_t> ends_;  // sequences up to the end of each part
};

}  // namespace performer::data
