#include "performer/models/lsh_slots.h"

#include <ATen/ATen.h>

#include <optional>

namespace performer::models {

LshSlots assign_slots(const Tensor& buckets, std::int64_t num_buckets, std::int64_t chunk) {
  const std::int64_t length = buckets.size(-1);
  const std::int64_t chunks = (length + chunk - 1) / chunk + num_buckets;
  auto sizes = buckets.sizes().vec();
  auto [sorted, order] = at::sort(buckets, std::optional<bool>(true), -1);
  sizes.back() = num_buckets + 1;
  const Tensor edges = at::arange(num_buckets + 1, buckets.options()).expand(sizes).contiguous();
  const Tensor start = at::searchsorted(sorted, edges);  // [..., buckets + 1]
  const Tensor padded = start.diff(1, -1).add(chunk - 1).floor_divide(chunk).mul(chunk);
  const Tensor shift = padded.cumsum(-1) - padded - start.narrow(-1, 0, num_buckets);
  const Tensor slots = shift.gather(-1, sorted) + at::arange(length, buckets.options());

  sizes.back() = chunks * chunk;
  const Tensor token_of_slot = at::full(sizes, length, buckets.options()).scatter(-1, slots, order);
  const Tensor bucket_of_slot = at::full(sizes, -1, buckets.options()).scatter(-1, slots, sorted);
  const Tensor slot_of_token = at::empty_like(buckets).scatter(-1, order, slots);
  // A chunk in use has a token in its first slot.
  const Tensor first = bucket_of_slot.unflatten(-1, {chunks, chunk}).select(-1, 0);
  const Tensor same = first.narrow(-1, 1, chunks - 1).eq(first.narrow(-1, 0, chunks - 1));
  return {token_of_slot, slot_of_token, at::constant_pad_nd(same, {1, 0}, 0)};
}

}  // namespace performer::models
