#include <ATen/ATen.h>

#include "performer/ops/favor/arguments.h"

namespace performer {
namespace {

// int64 in memory of its own, where the offsets lie: whoever holds the caller's tensor may write to
// it at any time, and what was checked must be what is read.
Tensor own_copy(const Tensor& offsets) {
  return offsets.to(offsets.options().dtype(at::kLong), /*non_blocking=*/false, /*copy=*/true)
      .contiguous();
}

// Offsets start at 0, do not fall and end at the packed length.
Tensor check_offsets(const FavorArgs& a, const Tensor& cu, const char* name, std::int64_t length,
                     const std::optional<c10::SymInt>& max_length) {
  Tensor host = cu.to(at::kCPU, at::kLong).contiguous();
  const auto* offsets = host.const_data_ptr<std::int64_t>();
  const auto last = host.numel() - 1;
  TORCH_CHECK(offsets[0] == 0, a.op, ": ", name, " must start at 0, got ", offsets[0]);
  for (std::int64_t n = 0; n < last; ++n) {
    TORCH_CHECK(offsets[n] <= offsets[n + 1], a.op, ": ", name, " must not decrease, got ",
                offsets[n], " before ", offsets[n + 1], " at position ", n);
    TORCH_CHECK(!max_length || offsets[n + 1] - offsets[n] <= max_length->expect_int(), a.op,
                ": max_seqlen of ", name, " is ", max_length ? *max_length : 0, ", but sequence ",
                n, " has length ", offsets[n + 1] - offsets[n]);
  }
  TORCH_CHECK(offsets[last] == length, a.op, ": ", name, " must end at the packed length ", length,
              ", got ", offsets[last]);
  return host;
}

}  // namespace

FavorArgs with_own_offsets(const FavorArgs& args) {
  if (!args.packed()) return args;
  FavorArgs own = args;
  own.cu_seqlens_q = own_copy(args.cu_seqlens_q);
  own.cu_seqlens_k =
      args.cu_seqlens_k.is_same(args.cu_seqlens_q) ? own.cu_seqlens_q : own_copy(args.cu_seqlens_k);
  return own;
}

PackedOffsets check_packed_offsets(const FavorArgs& args) {
  const auto length_q = args.q.size(2);
  const auto length_k = args.k.size(2);
  // One statement each: where the second throws, the first is a whole object.
  const Tensor q =
      check_offsets(args, args.cu_seqlens_q, "cu_seqlens_q", length_q, args.max_seqlen_q);
  const Tensor k =
      check_offsets(args, args.cu_seqlens_k, "cu_seqlens_k", length_k, args.max_seqlen_k);
  TORCH_CHECK((!args.causal && args.near == 0) || q.equal(k), args.op, ": ",
              args.causal ? "causal" : "near", " needs equal cu_seqlens_q and cu_seqlens_k, got ",
              q, " and ", k);
  return {q, k};
}

}  // namespace performer
