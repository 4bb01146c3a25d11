#pragma once

#include <cstdint>

namespace performer::data {

/// A keyed permutation of 0 ... size-1 in constant memory: a Feistel network with Philox as its
/// round function on the next even number of bits, walked until it falls inside. The same on every
/// machine. At most 4 walks on average.
class Permutation {
 public:
  /// `size` below 2^48. Different (seed, epoch, purpose) give unrelated orders.
  struct Key {
    std::uint64_t seed = 0;
    std::int64_t epoch = 0;
    std::uint8_t purpose = 0;
  };
  Permutation(std::int64_t size, const Key& key);

  std::int64_t operator()(std::int64_t index) const;
  std::int64_t size() const { return size_; }

 private:
  std::uint64_t encrypt(std::uint64_t x) const;

  std::int64_t size_;
  Key key_;
  int half_bits_;
};

}  // namespace performer::data
