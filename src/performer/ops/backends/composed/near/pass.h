#pragma once

#include <cstdint>
#include <functional>

#include "performer/ops/backends/composed/near/local.h"
#include "performer/ops/backends/composed/near/slots.h"

namespace performer::composed {

/// One dense call with a near field, in slots: its blocks, and who is near whom. Block 0 lies before
/// all queries.
class NearPass {
 public:
  explicit NearPass(const FavorArgs& args);

  std::int64_t blocks() const { return slots.blocks(); }
  Block block(std::int64_t index) const { return {index * near_, near_}; }
  bool has_far() const { return call.num_features > 0; }

  /// The queries of a block as they are: [B, Hs, G, C, D].
  Tensor raw_queries(std::int64_t index) const;
  /// The slots of what they see exactly, and what lies there.
  Block local_slots(std::int64_t index) const;
  LocalKeys local_keys(std::int64_t index) const;

  /// Whether some head sees the key in a slot: bool [B, T].
  Tensor real() const;

  /// log2 of a query's own factor of its far weights, exp(-|x|^2 / 2 + query_bias) / m.
  Tensor far_log2(std::int64_t index) const;  // [B, Hs, G, C]
  /// Of +-|x|^2 / 2 in it; 0 where there is none.
  double norm_sign() const;

  /// All rows, both fields; and the sums of the final state.
  struct Rows {
    RowSums rows;  // [B, Hs, G, T, Dv + 1]
    ScaledSum state;
  };
  Rows rows() const;

  /// Walks over the blocks and calls use(c, sum) with the sum of all blocks that lie before c and
  /// are not near it (up), or after it (down). add(c) makes a block's part of the sum. Returns
  /// `first` and all parts but those of the last two blocks of the walk.
  using MakePart = std::function<ScaledSum(std::int64_t block)>;
  using UseSum = std::function<void(std::int64_t block, const ScaledSum& sum)>;
  ScaledSum scan_up(const ScaledSum& first, const MakePart& add, const UseSum& use) const;
  ScaledSum scan_down(const ScaledSum& first, const MakePart& add, const UseSum& use) const;

  /// The sum of a block of keys, of which the final state's sums get those that are in no near
  /// field any more.
  ScaledSum sum_block(std::int64_t index) const;
  ScaledSum sum_joining_block(std::int64_t index) const;
  ScaledSum no_sum() const;

  Slots slots;
  DenseCall call;  // on slots

 private:
  std::int64_t near_;
  double far_constant_;
};

}  // namespace performer::composed
