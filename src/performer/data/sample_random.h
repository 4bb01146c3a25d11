#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "performer/core/random.h"

namespace performer::data {

/// What random numbers of the data are for; the values keep them apart from the models' own.
enum class Purpose : std::uint8_t { kOrder = 64, kCrop = 65, kMask = 66, kRecall = 67 };

/// Training rows differ from epoch to epoch; evaluation rows are the same whenever they are made.
enum class Use : std::uint8_t { kTraining, kEvaluation };

/// Which row is made. Every random choice in it is a function of these.
struct SampleKey {
  std::uint64_t seed = 0;
  std::int64_t epoch = 0;
  std::int64_t sample = 0;  // below 2^48
  Use use = Use::kTraining;
};

/// Random words of one row and purpose, in order.
class SampleRandom {
 public:
  SampleRandom(const SampleKey& key, Purpose purpose)
      : stream_(
            {key.seed, static_cast<std::uint32_t>(key.sample),
             static_cast<std::uint16_t>(key.sample >> 32), static_cast<std::uint32_t>(key.epoch)},
            static_cast<std::uint8_t>(purpose)) {}

  std::uint32_t next() {
    if (used_ == 4) {
      block_ = stream_.block(index_++);
      used_ = 0;
    }
    return block_[used_++];
  }

  /// Uniform in 0 ... bound-1 (to 2^-32 for bounds of 32 bits); bound below 2^32.
  std::int64_t below(std::int64_t bound) {
    return static_cast<std::int64_t>(
        static_cast<std::uint64_t>(next()) * static_cast<std::uint64_t>(bound) >> 32);
  }

 private:
  RandomStream stream_;
  std::array<std::uint32_t, 4> block_{};
  std::size_t used_ = 4;
  std::uint32_t index_ = 0;
};

}  // namespace performer::data
