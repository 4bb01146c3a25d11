#include "performer/ops/favor/merge_checks.h"

#include <ATen/ATen.h>

#include <string>
#include <vector>

#include "performer/ops/checks.h"
#include "performer/ops/favor/arguments.h"
#include "performer/ops/favor/state_tensors.h"

namespace performer {
namespace {

using Sizes = std::vector<c10::SymInt>;

/// What a near field's tensor must be, beside the sums of its state.
struct NearTensor {
  const char* name;
  const Tensor& tensor;
  Sizes sizes;
  at::ScalarType dtype;
};

void check_near_tensor(const std::string& which, const FavorState& state, const NearTensor& near) {
  const std::string name = which + near.name;
  const Tensor& t = near.tensor;
  check_defined(kMerge, {name.c_str(), t});
  check_dense(kMerge, name.c_str(), t);
  TORCH_CHECK(t.sym_sizes() == c10::SymIntArrayRef(near.sizes) && t.scalar_type() == near.dtype,
              kMerge, ": ", name, " must be ", near.dtype, " ", c10::SymIntArrayRef(near.sizes),
              " as ", which, "kv is ", state.kv.sym_sizes(), ", got ", t.scalar_type(), " ",
              t.sym_sizes());
  check_device(kMerge, {name.c_str(), t}, {"kv", state.kv});
}

// [N, Hkv, 2b, D]: all other sizes follow from these and from the sums.
void check_near_keys(const std::string& which, const FavorState& state) {
  const std::string name = which + "near_keys";
  const Tensor& t = state.near_keys;
  check_defined(kMerge, {name.c_str(), t});
  check_dense(kMerge, name.c_str(), t);
  TORCH_CHECK(t.dim() == 4, kMerge, ": ", name, " must be [N, key heads, 2 near, dim], got ",
              t.sym_sizes());
  const c10::SymInt heads = t.sym_size(1), places = t.sym_size(2);
  TORCH_CHECK(heads > 0 && state.kv.sym_size(1) % heads == 0, kMerge, ": ", name,
              " must have key heads that divide the ", state.kv.sym_size(1), " of ", which,
              "kv, got ", t.sym_sizes());
  TORCH_CHECK(places > 0 && places % 2 == 0 && places <= 2 * kMaxNear, kMerge, ": ", name,
              " must have two blocks of 1 ... ", kMaxNear, " tokens, got ", t.sym_sizes());
  TORCH_CHECK(t.sym_size(3) > 0, kMerge, ": ", name, " must have a last size that is not 0, got ",
              t.sym_sizes());
}

void check_near_state(const std::string& which, const FavorState& s) {
  check_state_tensors(kMerge, which.c_str(), {s.kv, s.normalizer, s.log2_scale});
  check_near_keys(which, s);
  const auto n = s.kv.sym_size(0), heads = s.kv.sym_size(1), width = s.kv.sym_size(3);
  const auto key_heads = s.near_keys.sym_size(1), places = s.near_keys.sym_size(2);
  const auto dim = s.near_keys.sym_size(3);
  const auto dtype = s.kv.scalar_type();
  check_near_tensor(which, s, {"near_keys", s.near_keys, {n, key_heads, places, dim}, dtype});
  check_near_tensor(which, s, {"near_values", s.near_values, {n, key_heads, places, width}, dtype});
  check_near_tensor(which, s, {"near_bias", s.near_bias, {n, heads, places}, dtype});
  check_near_tensor(which, s, {"near_position", s.near_position, {n}, at::kLong});
  if (!has_values(s.near_position)) return;
  check_position(kMerge, (which + "near_position").c_str(), s.near_position);
}

void check_alike(const char* name, const Tensor& earlier, const Tensor& later) {
  TORCH_CHECK(earlier.sym_sizes() == later.sym_sizes() &&
                  earlier.scalar_type() == later.scalar_type() &&
                  earlier.device() == later.device(),
              kMerge, ": later.", name, " must be as that of earlier, ", earlier.scalar_type(), " ",
              earlier.sym_sizes(), " on ", earlier.device(), ", got ", later.scalar_type(), " ",
              later.sym_sizes(), " on ", later.device());
}

void check_whole_blocks(const FavorState& earlier) {
  if (!has_values(earlier.near_position)) return;
  const Tensor parts = earlier.near_position.remainder(earlier.near());
  TORCH_CHECK(!parts.any().item<bool>(), kMerge,
              ": the earlier state must end with a whole block of ", earlier.near(),
              " tokens, got near_position ",
              earlier.near_position.masked_select(parts.ne(0)).select(0, 0).item<std::int64_t>());
}

void check_features(const FavorState& state, const Tensor& W, const FavorOptions& options) {
  TORCH_CHECK(W.defined(), kMerge,
              ": states with a near field need W (and the map, scale, projection_k and bias_k they "
              "were made with): keys that leave the near field become features");
  check_dense(kMerge, "W", W);
  const FavorArgs block = leaving_block(state, W, options);
  check_favor_args(block);
  TORCH_CHECK(block.num_features() == state.kv.sym_size(2), kMerge,
              ": W must have the features of the states, whose kv is ", state.kv.sym_sizes(),
              ", got W ", W.sym_sizes(), " with feature_map '", block.feature_map, "'");
}

}  // namespace

void check_fingerprints(const FavorState& earlier, const FavorState& later) {
  if (!earlier.fingerprint.defined() || !later.fingerprint.defined()) return;
  for (const Tensor& f : {earlier.fingerprint, later.fingerprint}) {
    TORCH_CHECK(f.scalar_type() == at::kLong && f.numel() == 1, kMerge,
                ": fingerprint must be int64 [1], got ", f.scalar_type(), " ", f.sizes());
  }
  const auto one = earlier.fingerprint.item<std::int64_t>();
  const auto other = later.fingerprint.item<std::int64_t>();
  TORCH_CHECK(one == other, kMerge,
              ": the states were made with different projections, maps or scales (fingerprints ",
              one, " and ", other, ")");
}

FavorArgs leaving_block(const FavorState& state, const Tensor& W, const FavorOptions& options) {
  const auto b = state.near();
  FavorOptions of_block;
  of_block.feature_map = options.feature_map, of_block.scale = options.scale;
  of_block.projection_k = options.projection_k, of_block.bias_k = options.bias_k;
  of_block.near = b;
  of_block.key_bias = state.near_bias.slice(2, 0, b);
  const Tensor k = state.near_keys.slice(2, 0, b), v = state.near_values.slice(2, 0, b);
  const Tensor q = at::zeros({}, k.options())
                       .expand_symint({k.sym_size(0), state.kv.sym_size(1), b, k.sym_size(3)});
  FavorArgs args = favor_args(q, k, v, W, of_block);
  args.op = kMerge;
  return args;
}

void check_near_merge(const FavorState& earlier, const FavorState& later, const Tensor& W,
                      const FavorOptions& options) {
  TORCH_CHECK(earlier.has_near() == later.has_near(), kMerge,
              ": the states must both have a near field, got one in ",
              earlier.has_near() ? "earlier" : "later", " alone");
  check_near_state("earlier.", earlier);
  check_near_state("later.", later);
  TORCH_CHECK(earlier.near() == later.near(), kMerge,
              ": the states must have the same near field, got near_keys with blocks of ",
              earlier.near(), " and ", later.near(), " tokens");
  check_alike("kv", earlier.kv, later.kv);
  check_alike("near_keys", earlier.near_keys, later.near_keys);
  check_features(earlier, W, options);
  check_whole_blocks(earlier);
}

}  // namespace performer
