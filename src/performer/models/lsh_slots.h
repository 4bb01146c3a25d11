#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace performer::models {

using at::Tensor;

/// Where each token goes when buckets are laid out one after the other, each padded to whole
/// chunks: S = chunk (ceil(L / chunk) + buckets) slots, whatever the buckets' sizes.
struct LshSlots {
  Tensor token_of_slot;  // int64 [..., S]; L: empty
  Tensor slot_of_token;  // int64 [..., L]
  Tensor continues;      // bool [..., S / chunk]: the chunk before is of the same bucket
};

/// buckets: int64 [..., L], values 0 ... num_buckets - 1. Tokens of a bucket keep their order.
LshSlots assign_slots(const Tensor& buckets, std::int64_t num_buckets, std::int64_t chunk);

}  // namespace performer::models
