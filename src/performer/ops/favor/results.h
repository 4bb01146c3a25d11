#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <tuple>
#include <vector>

#include "performer/ops/favor/fields.h"
#include "performer/ops/favor/state.h"

namespace performer {

/// What the forward operator returns.
struct FavorResult {
  Tensor out;                         // [B, H, Lq, Dv], q's dtype and stride order
  Tensor row_sum, row_log2_scale;     // [B, H, Lq] denominators: row_sum 2^row_log2_scale (int32);
                                      // [0] unless for_backward
  Tensor kv, normalizer, log2_scale;  // the final state
  // Its near field; [0] without
  Tensor near_keys, near_values, near_bias, near_position;
  Tensor fingerprint;  // int64 [1]
};

/// Its members in the order of the operator's results. The backward operator takes those of
/// kInBackward, out alone optional.
inline constexpr std::tuple kResultFields{
    SchemaField{"out", &FavorResult::out, kInBackward},
    SchemaField{"row_sum", &FavorResult::row_sum, kInBackward | kRequired},
    SchemaField{"row_log2_scale", &FavorResult::row_log2_scale, kInBackward | kRequired},
    SchemaField{"kv", &FavorResult::kv, kInBackward | kRequired},
    SchemaField{"normalizer", &FavorResult::normalizer, kInBackward | kRequired},
    SchemaField{"log2_scale", &FavorResult::log2_scale, kInBackward | kRequired},
    SchemaField{"near_keys", &FavorResult::near_keys},
    SchemaField{"near_values", &FavorResult::near_values},
    SchemaField{"near_bias", &FavorResult::near_bias},
    SchemaField{"near_position", &FavorResult::near_position},
    SchemaField{"fingerprint", &FavorResult::fingerprint},
};

using FavorNeeds = std::array<bool, kNumGradients>;

/// What the backward operator takes beside the forward arguments.
struct FavorSaved {
  FavorResult result;               // fingerprint undefined; out: the fused CUDA kernels read it
  Tensor grad_out;                  // [B, H, Lq, Dv]
  Tensor grad_kv, grad_normalizer;  // of the final state; undefined: 0
  Tensor grad_near_keys, grad_near_values, grad_near_bias;
  FavorNeeds needs{};

  bool needs_gradient(Tensor FavorArgs::*argument) const { return needs[gradient_of(argument)]; }
};

/// kNumGradients tensors; one that is not needed has 0 elements (q, k and v always are).
using FavorGradients = std::vector<Tensor>;

/// Throws unless the backward operator's own arguments fit `args`, which are checked already, and
/// each other. Works on symbolic sizes.
void check_favor_saved(const FavorSaved& saved, const FavorArgs& args);
/// The rules on the values of saved exponents, as check_favor_values.
void check_saved_values(const FavorSaved& saved, const FavorArgs& args);

/// The state among the results of a call with this near field.
FavorState result_state(const FavorResult& result, std::int64_t near);

/// Outputs in the shapes and stride orders the operators promise, for real and symbolic sizes
/// alike.
FavorResult allocate_result(const FavorArgs& args);
/// out alone, of one token.
Tensor allocate_step(const FavorArgs& args);
/// `result` with row_sum and row_log2_scale of full size: its own, or new ones.
FavorResult with_rows(const FavorArgs& args, const FavorResult& result);
FavorGradients allocate_gradients(const FavorArgs& args, const FavorNeeds& needs);

}  // namespace performer
