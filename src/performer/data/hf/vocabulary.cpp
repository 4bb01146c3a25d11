#include "performer/data/hf/vocabulary.h"

#include <algorithm>
#include <utility>

#include "performer/core/error.h"
#include "performer/core/safe_text.h"

namespace performer::data::hf {
namespace {

// The first 8 bytes as a number that is ordered as they are.
std::uint64_t head_of(std::string_view text) {
  std::uint64_t head = 0;
  for (std::size_t i = 0; i < sizeof head; ++i) {
    head = head << 8U | (i < text.size() ? static_cast<unsigned char>(text[i]) : 0U);
  }
  return head;
}

std::size_t common_prefix(std::string_view a, std::string_view b) {
  const auto [end, other] = std::ranges::mismatch(a, b);
  return static_cast<std::size_t>(end - a.begin());
}

}  // namespace

PrefixIndex::PrefixIndex(std::span<const Entry> entries) {
  nodes_.reserve(entries.size());
  for (const Entry& entry : entries) nodes_.push_back({head_of(entry.text), entry, -1});
  std::ranges::stable_sort(nodes_, [](const Node& a, const Node& b) {
    return a.head != b.head ? a.head < b.head : a.entry.text < b.entry.text;
  });
  // Of equal texts the last stays.
  const auto kept = std::unique(nodes_.rbegin(), nodes_.rend(), [](const Node& a, const Node& b) {
    return a.entry.text == b.entry.text;
  });
  nodes_.erase(nodes_.begin(), kept.base());
  for (std::size_t i = 1; i < nodes_.size(); ++i) {
    auto candidate = static_cast<std::int32_t>(i - 1);
    const auto text = nodes_[i].entry.text;
    while (candidate >= 0) {
      const Node& node = nodes_[static_cast<std::size_t>(candidate)];
      if (text.starts_with(node.entry.text)) break;
      candidate = node.parent;
    }
    nodes_[i].parent = candidate;
  }
}

std::int64_t PrefixIndex::last_up_to(std::string_view text) const {
  const std::uint64_t head = head_of(text);
  const auto behind = std::ranges::partition_point(nodes_, [&](const Node& node) {
    return node.head != head ? node.head < head : node.entry.text <= text;
  });
  return behind - nodes_.begin() - 1;
}

std::int32_t PrefixIndex::find(std::string_view text) const {
  const std::int64_t at = last_up_to(text);
  if (at < 0) return -1;
  const Entry& entry = nodes_[static_cast<std::size_t>(at)].entry;
  return entry.text == text ? entry.id : -1;
}

PrefixIndex::Entry PrefixIndex::longest_prefix(std::string_view text) const {
  // Every entry that `text` begins with is a prefix of the last entry that is not behind it.
  std::int64_t at = last_up_to(text);
  if (at < 0) return {};
  const auto common = common_prefix(text, nodes_[static_cast<std::size_t>(at)].entry.text);
  while (at >= 0) {
    const Node& node = nodes_[static_cast<std::size_t>(at)];
    if (node.entry.text.size() <= common) return node.entry;
    at = node.parent;
  }
  return {};
}

Vocabulary::Vocabulary(std::vector<NamedToken> tokens, const std::string& place) {
  const auto count = static_cast<std::int64_t>(tokens.size());
  if (count == 0) fail(ExitCode::kCorrupt, "{}: there are no tokens in it", place);
  if (count > kMaxTokens) {
    fail(ExitCode::kCorrupt, "{}: {} tokens, at most {} are possible", place, count, kMaxTokens);
  }
  tokens_.resize(tokens.size());
  std::vector<bool> seen(tokens.size());
  for (auto& [text, id] : tokens) {
    if (id < 0 || id >= count) {
      fail(ExitCode::kCorrupt,
           "{}: the id of {} is {}, but {} tokens must have the ids from 0 to {}, each one", place,
           shown(text), id, count, count - 1);
    }
    const auto at = static_cast<std::size_t>(id);
    if (seen[at]) {
      fail(ExitCode::kCorrupt, "{}: the id {} is that of {} and of {}", place, id,
           shown(tokens_[at]), shown(text));
    }
    if (static_cast<std::int64_t>(text.size()) > kMaxTokenBytes) {
      fail(ExitCode::kCorrupt, "{}: the token {} has {} bytes, at most {} are possible", place, id,
           text.size(), kMaxTokenBytes);
    }
    seen[at] = true;
    tokens_[at] = std::move(text);
  }
  std::vector<PrefixIndex::Entry> entries(tokens_.size());
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    entries[i] = {tokens_[i], static_cast<std::int32_t>(i)};
  }
  index_ = PrefixIndex(entries);
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    const auto other = index_.find(tokens_[i]);
    if (other != static_cast<std::int32_t>(i)) {
      fail(ExitCode::kCorrupt, "{}: the token {} occurs twice, as {} and {}", place,
           shown(tokens_[i]), i, other);
    }
  }
}

}  // namespace performer::data::hf
