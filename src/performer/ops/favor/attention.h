#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <utility>

#include "performer/ops/favor/state.h"
#include "performer/ops/feature_map.h"

namespace performer {

enum class Causality : std::uint8_t { kBidirectional, kCausal };
enum class Renormalize : std::uint8_t { kNo, kYes };

/// Options of favor_attention; undefined tensors are absent.
struct FavorOptions {
  FeatureMap feature_map = FeatureMap::kPositive;
  Causality causality = Causality::kBidirectional;
  /// x = sqrt(scale) q, y = sqrt(scale) k; default 1/sqrt(D), generalised maps 1.
  std::optional<double> scale;
  std::optional<double> eps;  // generalised maps: phi = f(W x) + eps; default 1e-3, elu1 0
  Renormalize renormalize = Renormalize::kYes;
  /// Tokens of a block of the exact near field (softmax maps), at most kMaxNear; 0: the paper's
  /// FAVOR+.
  std::int64_t near = 0;
  Tensor key_mask;                    // bool [B, Lk], true = a real key
  Tensor cu_seqlens_q, cu_seqlens_k;  // int32 or int64 [N+1]: packed sequences, q is [1, H, T, D]
  /// Limits that the lengths of packed sequences are checked against, where the offsets lie on the
  /// CPU. Nothing else depends on them.
  std::optional<std::int64_t> max_seqlen_q, max_seqlen_k;
  Tensor projection_k;    // keys' own projection, shape rules of W
  Tensor bias_q, bias_k;  // [M'] or [heads, M'], added to the log features
  Tensor key_bias;        // [B, heads, Lk], added to the key's log feature; -inf removes the key
  Tensor query_bias;      // [B, heads, Lq], the query's log feature; loglinear with `near`
  FavorState initial_state;
};

/// The longest block of the near field.
inline constexpr std::int64_t kMaxNear = 4096;

/// FAVOR+ attention (paper, Section 2 and Appendix B):
///   out_i = sum_j (phi(x_i) . phi(y_j)) v_j / sum_j phi(x_i) . phi(y_j),  j <= i when causal,
/// exactly this ratio for the softmax maps: no eps, at any norm (log2 phi within +-2^28; a row
/// wholly beyond is NaN). Without renormalisation, the numerator.
/// q: [B, H, Lq, D];  k: [B, Hkv, Lk, D];  v: [B, Hkv, Lk, Dv];  W: [M, D] or [1|Hkv|H, M, D],
/// undefined for a generalised map f(x).  Returns [B, H, Lq, Dv] in q's dtype and stride order. A
/// row without keys, or with a denominator of exactly 0, is 0.
/// With `near` = b, tokens are cut into blocks of b from the first real one of their row or packed
/// sequence. Keys of the query's own block and of its neighbours (causal: of the block before, and
/// its own up to itself) weigh exactly exp(scale q.k); all others weigh phi(x_i) . phi(y_j), norm
/// terms and 1/m included, so that both estimate the same kernel; one denominator serves both.
/// key_bias counts in both fields, for loglinear in the far one alone, as query_bias does.
/// O(L M' (D + Dv)) time; no tensor of L x M' elements in memory. Differentiable once. Oracle:
/// reference::favor_attention.
Tensor favor_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& W,
                       const FavorOptions& options = {});

/// The same, with the state after the last key: [N, Hs, M', ...], N = B or the number of packed
/// sequences.
std::pair<Tensor, FavorState> favor_attention_with_state(const Tensor& q, const Tensor& k,
                                                         const Tensor& v, const Tensor& W,
                                                         const FavorOptions& options = {});

}  // namespace performer
