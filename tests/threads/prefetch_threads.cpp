// Batches made ahead on several threads, as training makes them, while the thread sanitizer looks
// on. A race ends the program with the sanitizer's exit code; wrong batches with 1.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "performer/data/batch_stream.h"
#include "performer/data/prefetch.h"
#include "performer/data/sequence_dataset.h"
#include "performer/data/token_stream.h"

namespace performer::data {
namespace {

constexpr std::int64_t kRows = 3;
constexpr std::int64_t kBatches = 60;
constexpr int kThreads = 4;

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "prefetch_threads: %s\n", what);
  std::exit(1);
}

TokenSpace letters() {
  TokenSpace space;
  space.vocabulary = 30;
  space.pad = 0;
  space.bos = 1;
  space.eos = 2;
  space.mask = 3;
  space.first_regular = 4;
  space.regular = 20;
  return space;
}

// Sequences of 0 to 90 tokens, in two parts.
std::unique_ptr<SequenceSource> sequences() {
  std::vector<std::unique_ptr<SequenceSource>> parts;
  for (std::int64_t part = 0; part < 2; ++part) {
    auto memory = std::make_unique<MemorySequences>();
    for (std::int64_t i = 0; i < 70; ++i) {
      std::vector<std::uint8_t> tokens(static_cast<std::size_t>((i * 37 + part) % 91));
      for (std::size_t t = 0; t < tokens.size(); ++t) {
        tokens[t] = static_cast<std::uint8_t>(4 + (t * t + static_cast<std::size_t>(i)) % 20);
      }
      memory->add(tokens);
    }
    parts.push_back(std::move(memory));
  }
  return std::make_unique<JoinedSequences>(std::move(parts));
}

BatchStream stream_of(bool joined, const char* objective) {
  DataConfig config;
  config.length = 32;
  config.pad_multiple = 8;
  config.objective = objective;
  const auto space = letters();
  std::shared_ptr<const Dataset> dataset;
  if (joined) {
    auto stream = std::make_unique<JoinedStream>(sequences(), space.eos, 5);
    dataset = std::make_shared<BlockDataset>(config, space, std::move(stream));
  } else {
    dataset = std::make_shared<SequenceDataset>(config, space, sequences());
  }
  return {dataset, Use::kTraining};
}

bool same(const Batch& a, const Batch& b) {
  return a.samples == b.samples && a.num_targets == b.num_targets && a.num_tokens == b.num_tokens &&
         a.tokens.equal(b.tokens) && a.targets.equal(b.targets) && a.key_mask.equal(b.key_mask);
}

void check_order(const BatchStream& stream) {
  const auto make = [&](std::int64_t i) { return stream.batch(i * kRows, kRows); };
  for (const std::int64_t depth : {1, 5}) {
    Prefetcher ahead(make, {.end = kBatches, .depth = depth, .threads = kThreads});
    for (std::int64_t i = 0; !ahead.done(); ++i) {
      require(same(ahead.next(), make(i)), "another batch than without threads");
    }
  }
}

// The consumer leaves while threads make batches, wait for room, or have not begun.
void check_early_end(const BatchStream& stream) {
  const auto make = [&](std::int64_t i) { return stream.batch(i * kRows, kRows); };
  for (std::int64_t taken = 0; taken < 30; ++taken) {
    Prefetcher ahead(make, {.depth = 3, .threads = kThreads});
    for (std::int64_t i = 0; i < taken; ++i) ahead.next();
  }
}

void check_failures(const BatchStream& stream) {
  const auto make = [&](std::int64_t i) {
    if (i % 7 == 6) throw std::runtime_error("no batch");
    return stream.batch(i * kRows, kRows);
  };
  Prefetcher ahead(make, {.end = kBatches, .depth = 4, .threads = kThreads});
  for (std::int64_t i = 0; !ahead.done(); ++i) {
    bool failed = false;
    try {
      ahead.next();
    } catch (const std::runtime_error&) {
      failed = true;
    }
    require(failed == (i % 7 == 6), "a failure told of another batch");
  }
}

void check_all() {
  for (const bool joined : {false, true}) {
    for (const auto* objective : {"causal", "masked"}) {
      const auto stream = stream_of(joined, objective);
      check_order(stream);
      check_early_end(stream);
      check_failures(stream);
    }
  }
}

}  // namespace
}  // namespace performer::data

int main() { performer::data::check_all(); }
