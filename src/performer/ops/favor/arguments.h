#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/SymInt.h>

#include <cstdint>
#include <optional>
#include <string>

#include "performer/ops/feature_map.h"

namespace performer {

struct FavorOptions;

/// The arguments of the registered operators, undefined tensors where absent. One struct serves
/// checks, autograd, meta and every implementation; fields.h lists its members for what is derived.
struct FavorArgs {
  Tensor q, k, v;     // [B, H, Lq, D], [B, Hkv, Lk, D], [B, Hkv, Lk, Dv]
  Tensor projection;  // W
  std::string feature_map = "positive";
  bool causal = false;
  std::optional<double> scale, eps;
  bool renormalize = true;
  std::int64_t near = 0;  // tokens of a block of the exact near field; 0: none
  Tensor key_mask, cu_seqlens_q, cu_seqlens_k;
  std::optional<c10::SymInt> max_seqlen_q, max_seqlen_k;
  Tensor projection_k, bias_q, bias_k, key_bias, query_bias;
  Tensor state_kv, state_normalizer, state_log2_scale;
  Tensor state_near_keys, state_near_values, state_near_bias, state_near_position;
  Tensor state_fingerprint;
  bool for_backward = true;  // false: the rows' denominators, 8 bytes a row, are not returned
  const char* op = "favor_attention";  // no argument: opens the messages of the checks

  FeatureMap map() const { return parse_feature_map(feature_map); }
  bool packed() const { return cu_seqlens_q.defined(); }
  /// W, or the keys' own projection.
  const Tensor& key_projection() const {
    return projection_k.defined() ? projection_k : projection;
  }
  double resolved_scale() const;
  double resolved_eps() const;
  c10::SymInt num_features() const;   // M'
  c10::SymInt num_states() const;     // N: batch entries or packed sequences
  c10::SymInt state_heads() const;    // Hs
  at::ScalarType accumulate() const;  // float32, float64 for float64
};

/// The operator's arguments for the C++ functions' own.
FavorArgs favor_args(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& W,
                     const FavorOptions& options);
/// The way back: the options of `args`.
FavorOptions favor_options(const FavorArgs& args);

/// Every rule on ranks, sizes, dtypes, devices and options that needs no tensor's values.
/// Works on symbolic sizes. Throws with the argument's name and what was seen.
void check_favor_args(const FavorArgs& args);

/// Those of them that concern the near field.
void check_near_field(const FavorArgs& args);

/// The rules of favor_step_ beside those: one token, and a state that can be written in place.
void check_favor_step(const FavorArgs& args);
/// What is written in place is nobody else's memory: a token read after it was written, or a scale
/// written as a sum, would be wrong without a word.
void check_own_memory(const FavorArgs& args);

/// The rules on the values of state_log2_scale, which kernels turn into numbers of other types, and
/// of state_near_position, which they count on from. On the CPU; on other devices nothing is read.
void check_favor_values(const FavorArgs& args);

/// Throws unless all of t's values, int32 on the CPU, lie in [low, high]. Other devices: nothing.
void check_range(const char* op, const char* name, const Tensor& t, std::int64_t low,
                 std::int64_t high);

/// The same of a count of tokens, int64.
void check_position(const char* op, const char* name, const Tensor& t);

/// The same arguments with cu_seqlens in memory of their own: copied once, checked and read there.
FavorArgs with_own_offsets(const FavorArgs& args);

/// The rules on the values of cu_seqlens, which are returned as host offsets.
struct PackedOffsets {
  Tensor q, k;  // int64 on the CPU, [N+1]
};
PackedOffsets check_packed_offsets(const FavorArgs& args);

/// An empty tensor of `sizes` whose dimensions lie in memory in the order of `like`'s.
Tensor empty_in_stride_order(const Tensor& like, c10::SymIntArrayRef sizes);

}  // namespace performer
