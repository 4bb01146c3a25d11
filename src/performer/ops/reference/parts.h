#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <limits>
#include <vector>

#include "performer/ops/reference/reference.h"

// What definition.cpp leaves to the files beside it. Written on its own, without the operator's
// code: an oracle must not share the faults of what it judges.
namespace performer::reference {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// phi_r(x) = value_r exp(exponent_r + token), apart from the constant of the map.
struct Features {
  Tensor value, exponent;  // [B, H, L, M']
  Tensor token;            // [B, H, L, 1]
};

/// Everything on the side of the keys, heads already repeated to those of q.
struct Keys {
  Features features;
  Tensor y, bias;                     // [B, H, Lk, D], [B, H, Lk, 1] key_bias, -inf where removed
  Tensor v;                           // [B, H, Lk, Dv]
  Tensor state_kv, state_normalizer;  // [B, H, M', Dv], [B, H, M', 1]
  Tensor state_exponent;              // [B, H, 1, M'], natural logarithm
};

/// sum_r phi_r(x_i) phi_r(y_j) exp(-shift_i), for the keys and for each feature of the state.
struct Weights {
  Tensor keys, keys_terms;  // [B, H, R, Lk]; the sum and the sum of absolute values
  Tensor state;             // [B, H, R, M']
};

/// What rows see exactly, beside the features' far field; undefined: nothing.
struct NearKeys {
  Tensor log_weights;  // [B, H, R, N]  x_i . y_j + bias_j, -inf where there is no key
  Tensor v;            // [B, H, N, Dv]
};

/// The maps (maps.cpp). Exponential ones are positive, loglinear and hyperbolic; softmax ones are
/// those and trigonometric; the others are f(u) + eps.
bool is_exponential(FeatureMap map);
bool is_softmax(FeatureMap map);
Tensor elementwise(FeatureMap map, const Tensor& u);
/// log of phi's constant squared: 1/M or 1/(2M) for the paper's softmax estimators.
double log_constant(FeatureMap map, std::int64_t rows);
double scale_of(const FavorOptions& o, std::int64_t dim);
double eps_of(const FavorOptions& o);

/// Heads, masks and biases (keys.cpp). Query head h reads head h // (H / heads) of an argument that
/// is shared (1), per key head or per query head. q, with its dtype and heads, decides how the keys
/// are laid out.
Tensor spread_heads(const Tensor& t, std::int64_t axis, std::int64_t heads);
Tensor heads_of(const Tensor& W, std::int64_t rank, const Tensor& q);
struct Inputs {
  Tensor q, k, v, W;
};
Keys keys_of(const Inputs& in, const FavorOptions& o);

/// The initial state, or an empty one, beside the keys' features (state.cpp).
void add_state(Keys& keys, const FavorState& state, const Tensor& q);

/// The twin in the arithmetic of an unfused implementation (unfused.cpp): features are stored and
/// rounded. key_scale is the largest exponent of each feature over the keys.
Tensor rounded(const Tensor& t, at::ScalarType dtype);
Weights unfused_weights(const Features& x, const Keys& keys, const Tensor& shift,
                        const Tensor& key_scale, at::ScalarType dtype);
/// Attention::numerator_terms and denominator_terms.
void add_terms(Attention& a, const Weights& w, const Keys& keys, const Tensor& factor);

/// The method itself (definition.cpp). x: [B, H, L, D]; W: [H, M, D] or undefined; bias: [H, M'] or
/// undefined.
Features features_of(const Tensor& x, const Tensor& W, const Tensor& bias, const FavorOptions& o);
Weights weights_of(const Features& x, const Keys& keys, const Tensor& shift, FeatureMap map);
Attention attend(const Features& x, const Keys& keys, const NearKeys& near, const Evaluation& e,
                 double log_constant);
Attention dense_attention(const Inputs& in, const Evaluation& e);

/// `attend` for the rows of `queries` in blocks that bound the memory (blocks.cpp).
Attention attend_by_blocks(const Features& queries, const Keys& keys, const Tensor& rows,
                           const Evaluation& e, double log_constant);
Attention concatenate(const std::vector<Attention>& parts, std::int64_t dim = 2);
Features rows_of(const Features& x, std::int64_t begin, std::int64_t end);
/// The keys `index`, int64 [N], and the state.
Keys take_keys(Keys keys, const Tensor& index);

/// The near field (near.cpp): which keys a row sees exactly.
Attention near_attention(const Inputs& in, const Evaluation& e);
/// Sums of the far field times exp(-log), to which add_near adds those of the near one, on the
/// larger of both exponents.
struct FieldSums {
  Tensor &num, &den, &log;
};
void add_near(const NearKeys& near, const Evaluation& e, const FieldSums& sums, Attention& a);

/// Sequence n of a packed problem is a problem of its own (packed.cpp).
Attention packed_attention(const Inputs& in, const Evaluation& e);

}  // namespace performer::reference
