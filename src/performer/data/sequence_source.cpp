#include "performer/data/sequence_source.h"

#include <algorithm>

namespace performer::data {

std::vector<std::uint8_t> SequenceSource::tokens(std::int64_t index) const {
  std::vector<std::uint8_t> all(static_cast<std::size_t>(length(index)));
  read(index, 0, all);
  return all;
}

void MemorySequences::add(std::span<const std::uint8_t> tokens) {
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  ends_.push_back(static_cast<std::int64_t>(tokens_.size()));
}

std::int64_t MemorySequences::length(std::int64_t index) const {
  const auto i = static_cast<std::size_t>(index);
  return ends_[i + 1] - ends_[i];
}

void MemorySequences::read(std::int64_t index, std::int64_t begin,
                           std::span<std::uint8_t> out) const {
  const std::int64_t from = ends_[static_cast<std::size_t>(index)] + begin;
  std::copy_n(tokens_.begin() + from, out.size(), out.begin());
}

std::string MemorySequences::id(std::int64_t index) const {
  return ids_.empty() ? std::string() : ids_[static_cast<std::size_t>(index)];
}

JoinedSequences::JoinedSequences(std::vector<std::unique_ptr<SequenceSource>> parts)
    : parts_(std::move(parts)) {
  std::int64_t end = 0;
  for (const auto& part : parts_) ends_.push_back(end += part->size());
}

JoinedSequences::Place JoinedSequences::place_of(std::int64_t index) const {
  const auto part =
      static_cast<std::size_t>(std::ranges::upper_bound(ends_, index) - ends_.begin());
  return {*parts_[part], index - (part > 0 ? ends_[part - 1] : 0)};
}

std::int64_t JoinedSequences::length(std::int64_t index) const {
  const Place place = place_of(index);
  return place.part.length(place.index);
}

std::string JoinedSequences::id(std::int64_t index) const {
  const Place place = place_of(index);
  return place.part.id(place.index);
}

FastaCounts JoinedSequences::counts() const {
  FastaCounts counts;
  for (const auto& part : parts_) counts += part->counts();
  return counts;
}

void JoinedSequences::read(std::int64_t index, std::int64_t begin,
                           std::span<std::uint8_t> out) const {
  const Place place = place_of(index);
  place.part.read(place.index, begin, out);
}

}  // namespace performer::data
