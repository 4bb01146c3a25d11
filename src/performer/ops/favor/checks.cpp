#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "performer/ops/checks.h"
#include "performer/ops/favor/arguments.h"
#include "performer/ops/favor/state.h"

namespace performer {
namespace {

const char* article(const Tensor& t) { return t.defined() ? "" : "None"; }

void check_query_key_value(const FavorArgs& a) {
  const auto check = [&](const Tensor& t, const char* name, const char* shape) {
    TORCH_CHECK(t.defined() && t.dim() == 4, a.op, ": ", name, " must be ", shape, ", got ",
                article(t), t.defined() ? t.sym_sizes() : c10::SymIntArrayRef());
  };
  check(a.q, "q", "[batch, heads, length, dim]");
  check(a.k, "k", "[batch, key heads, length, dim]");
  check(a.v, "v", "[batch, key heads, length, value dim]");
  const auto dtype = a.q.scalar_type();
  TORCH_CHECK(
      dtype == at::kFloat || dtype == at::kDouble || dtype == at::kHalf || dtype == at::kBFloat16,
      a.op, ": q must be float32, float64, bfloat16 or float16, got ", dtype);
  TORCH_CHECK(a.k.scalar_type() == dtype && a.v.scalar_type() == dtype, a.op,
              ": q, k and v must have one dtype, got q ", dtype, ", k ", a.k.scalar_type(), ", v ",
              a.v.scalar_type());
  TORCH_CHECK(a.k.sym_size(0) == a.q.sym_size(0) && a.v.sym_size(0) == a.q.sym_size(0), a.op,
              ": q, k and v must have one batch size, got q ", a.q.sym_sizes(), ", k ",
              a.k.sym_sizes(), ", v ", a.v.sym_sizes());
  TORCH_CHECK(a.q.sym_size(3) > 0 && a.k.sym_size(3) == a.q.sym_size(3), a.op,
              ": k must have q's last size (not 0), got q ", a.q.sym_sizes(), ", k ",
              a.k.sym_sizes());
  TORCH_CHECK(a.v.sym_size(1) == a.k.sym_size(1) && a.v.sym_size(2) == a.k.sym_size(2), a.op,
              ": v must have k's heads and length, got k ", a.k.sym_sizes(), ", v ",
              a.v.sym_sizes());
  TORCH_CHECK(a.q.sym_size(1) > 0 && a.k.sym_size(1) > 0 && a.q.sym_size(1) % a.k.sym_size(1) == 0,
              a.op, ": the heads of k must divide those of q (neither 0), got q ", a.q.sym_sizes(),
              ", k ", a.k.sym_sizes());
  TORCH_CHECK(a.k.device() == a.q.device() && a.v.device() == a.q.device(), a.op,
              ": q, k and v must be on one device, got q ", a.q.device(), ", k ", a.k.device(),
              ", v ", a.v.device());
}

void check_lengths(const FavorArgs& a) {
  TORCH_CHECK(!a.causal || a.q.sym_size(2) == a.k.sym_size(2), a.op,
              ": causal needs q and k of one length (give a prefix as initial_state), got q ",
              a.q.sym_sizes(), ", k ", a.k.sym_sizes());
}

// Parameters: float32 or float64, on q's device.
void check_parameter(const FavorArgs& a, const Tensor& p, const char* name) {
  check_dense(a.op, name, p);
  TORCH_CHECK(p.scalar_type() == at::kFloat || p.scalar_type() == at::kDouble, a.op, ": ", name,
              " must be float32 or float64 whatever the dtype of q, got ", p.scalar_type());
  check_device(a.op, {name, p}, {"q", a.q});
}

void check_parameter_heads(const FavorArgs& a, const c10::SymInt& heads, const char* name,
                           const Tensor& p) {
  TORCH_CHECK(heads == 1 || heads == a.k.sym_size(1) || heads == a.q.sym_size(1), a.op, ": ", name,
              " must be shared or have 1, ", a.k.sym_size(1), " (k's) or ", a.q.sym_size(1),
              " (q's) heads, got ", p.sym_sizes());
}

void check_projection(const FavorArgs& a, const Tensor& w, const char* name) {
  check_parameter(a, w, name);
  TORCH_CHECK(w.dim() == 2 || w.dim() == 3, a.op, ": ", name,
              " must be [features, dim] or [heads, features, dim], got ", w.sym_sizes());
  TORCH_CHECK(w.sym_size(-1) == a.q.sym_size(3), a.op, ": ", name, " must have the width of q, ",
              a.q.sym_size(3), ", got ", w.sym_sizes());
  TORCH_CHECK(w.sym_size(-2) > 0 || a.near > 0, a.op, ": ", name,
              " must have at least one feature (row) where near is 0, got ", w.sym_sizes());
  if (w.dim() == 3) check_parameter_heads(a, w.sym_size(0), name, w);
}

void check_bias(const FavorArgs& a, const Tensor& b, const char* name) {
  TORCH_CHECK(is_exponential_map(a.map()), a.op, ": ", name,
              " is for the maps positive, loglinear and hyperbolic, got feature_map '",
              a.feature_map, "'");
  check_parameter(a, b, name);
  TORCH_CHECK((b.dim() == 1 || b.dim() == 2) && b.sym_size(-1) == a.num_features(), a.op, ": ",
              name, " must be [features] or [heads, features] with ", a.num_features(),
              " features, got ", b.sym_sizes());
  if (b.dim() == 2) check_parameter_heads(a, b.sym_size(0), name, b);
}

void check_map_options(const FavorArgs& a) {
  const bool softmax = is_softmax_map(a.map());
  TORCH_CHECK(!a.eps || !softmax, a.op, ": eps is for generalised maps; '", a.feature_map,
              "' is the exact ratio of its features at any norm and needs none (an eps would pull "
              "attention towards plain averaging), got eps=",
              a.eps.value_or(0));
  TORCH_CHECK(!a.eps || (std::isfinite(*a.eps) && *a.eps >= 0), a.op,
              ": eps must be finite and not negative, got ", a.eps.value_or(0));
  TORCH_CHECK(!a.scale || (std::isfinite(*a.scale) && *a.scale > 0), a.op,
              ": scale must be finite and positive, got ", a.scale.value_or(0));
  check_float_range(a.op, "scale", a.scale.value_or(0), a.q.scalar_type());
  check_float_range(a.op, "eps", a.eps.value_or(0), a.q.scalar_type());
  TORCH_CHECK(a.projection.defined() || !softmax, a.op, ": feature_map '", a.feature_map,
              "' needs a projection W, got None");
  if (a.projection.defined()) check_projection(a, a.projection, "W");
  if (a.projection_k.defined()) {
    TORCH_CHECK(
        is_exponential_map(a.map()), a.op,
        ": projection_k is for the maps positive, loglinear and hyperbolic, got feature_map '",
        a.feature_map, "'");
    check_projection(a, a.projection_k, "projection_k");
    TORCH_CHECK(a.projection_k.sym_size(-2) == a.projection.sym_size(-2), a.op,
                ": projection_k must have as many features as W, got W ", a.projection.sym_sizes(),
                ", projection_k ", a.projection_k.sym_sizes());
  }
  if (a.bias_q.defined()) check_bias(a, a.bias_q, "bias_q");
  if (a.bias_k.defined()) check_bias(a, a.bias_k, "bias_k");
}

void check_key_mask_and_bias(const FavorArgs& a) {
  if (a.key_mask.defined()) {
    TORCH_CHECK(a.key_mask.scalar_type() == at::kBool, a.op,
                ": key_mask must be bool (True = a real key), got ", a.key_mask.scalar_type());
    TORCH_CHECK(a.key_mask.dim() == 2 && a.key_mask.sym_size(0) == a.k.sym_size(0) &&
                    a.key_mask.sym_size(1) == a.k.sym_size(2),
                a.op, ": key_mask must be [", a.k.sym_size(0), ", ", a.k.sym_size(2),
                "] (batch, length of k), got ", a.key_mask.sym_sizes());
    check_device(a.op, {"key_mask", a.key_mask}, {"q", a.q});
  }
  if (!a.key_bias.defined()) return;
  const Tensor& b = a.key_bias;
  TORCH_CHECK(is_softmax_map(a.map()), a.op, ": key_bias is for softmax maps, got feature_map '",
              a.feature_map, "'");
  TORCH_CHECK(b.is_floating_point(), a.op, ": key_bias must be floating point, got ",
              b.scalar_type());
  check_device(a.op, {"key_bias", b}, {"q", a.q});
  TORCH_CHECK((b.dim() == 2 || b.dim() == 3) && b.sym_size(0) == a.k.sym_size(0) &&
                  b.sym_size(-1) == a.k.sym_size(2),
              a.op,
              ": key_bias must be [batch, heads, length of k] or [batch, length of k] with k ",
              a.k.sym_sizes(), ", got ", b.sym_sizes());
  if (b.dim() == 3) check_parameter_heads(a, b.sym_size(1), "key_bias", b);
}

void check_packed(const FavorArgs& a) {
  TORCH_CHECK(a.cu_seqlens_q.defined() == a.cu_seqlens_k.defined(), a.op,
              ": cu_seqlens_q and cu_seqlens_k come together, got only ",
              a.cu_seqlens_q.defined() ? "cu_seqlens_q" : "cu_seqlens_k");
  if (!a.packed()) {
    TORCH_CHECK(!a.max_seqlen_q && !a.max_seqlen_k, a.op,
                ": max_seqlen_q and max_seqlen_k are for packed sequences: pass cu_seqlens too");
    return;
  }
  const auto check = [&](const Tensor& cu, const char* name) {
    TORCH_CHECK(cu.scalar_type() == at::kInt || cu.scalar_type() == at::kLong, a.op, ": ", name,
                " must be int32 or int64, got ", cu.scalar_type());
    TORCH_CHECK(cu.is_cpu() || cu.device() == a.q.device(), a.op, ": ", name,
                " must be on the CPU or the device of q, ", a.q.device(), ", got ", cu.device());
    TORCH_CHECK(cu.dim() == 1 && cu.sym_size(0) >= 2, a.op, ": ", name,
                " must be [sequences + 1] with at least one sequence, got ", cu.sym_sizes());
  };
  check(a.cu_seqlens_q, "cu_seqlens_q");
  check(a.cu_seqlens_k, "cu_seqlens_k");
  TORCH_CHECK(a.cu_seqlens_q.sym_size(0) == a.cu_seqlens_k.sym_size(0), a.op,
              ": cu_seqlens_q and cu_seqlens_k must have the same length, got ",
              a.cu_seqlens_q.sym_sizes(), " and ", a.cu_seqlens_k.sym_sizes());
  TORCH_CHECK(a.q.sym_size(0) == 1, a.op, ": packed q must have batch size 1, got ",
              a.q.sym_sizes());
}

void check_fingerprint(const FavorArgs& a) {
  const Tensor& f = a.state_fingerprint;
  if (!f.defined()) return;
  TORCH_CHECK(f.scalar_type() == at::kLong && f.dim() == 1 && f.sym_size(0) == 1, a.op,
              ": initial_state.fingerprint must be int64 [1], got ", f.scalar_type(), " ",
              f.sym_sizes());
  check_device(a.op, {"initial_state.fingerprint", f}, {"q", a.q});
}

void check_state(const FavorArgs& a) {
  check_fingerprint(a);
  const bool given = a.state_kv.defined();
  TORCH_CHECK(given == a.state_normalizer.defined() && given == a.state_log2_scale.defined(), a.op,
              ": initial_state needs kv, normalizer and log2_scale together");
  if (!given) return;
  const auto check = [&](const Tensor& t, const char* name, c10::SymIntArrayRef sizes,
                         at::ScalarType dtype) {
    TORCH_CHECK(t.sym_sizes() == sizes, a.op, ": ", name, " must be ", sizes, ", got ",
                t.sym_sizes());
    TORCH_CHECK(t.scalar_type() == dtype, a.op, ": ", name, " must be ", dtype, ", got ",
                t.scalar_type());
    check_device(a.op, {name, t}, {"q", a.q});
  };
  const std::vector<c10::SymInt> sums = {a.num_states(), a.state_heads(), a.num_features()};
  std::vector<c10::SymInt> kv = sums;
  kv.push_back(a.v.sym_size(3));
  check(a.state_kv, "initial_state.kv", kv, a.accumulate());
  check(a.state_normalizer, "initial_state.normalizer", sums, a.accumulate());
  check(a.state_log2_scale, "initial_state.log2_scale", sums, at::kInt);
}

}  // namespace

void check_favor_args(const FavorArgs& a) {
  a.map();
  check_query_key_value(a);
  check_packed(a);
  check_lengths(a);
  check_map_options(a);
  check_key_mask_and_bias(a);
  check_state(a);
  check_near_field(a);
}

void check_favor_values(const FavorArgs& a) {
  if (!a.state_log2_scale.defined()) return;
  check_range(a.op, "initial_state.log2_scale", a.state_log2_scale, kEmptyLog2Scale,
              kLargestLog2Scale);
  check_position(a.op, "initial_state.near_position", a.state_near_position);
}

void check_position(const char* op, const char* name, const Tensor& t) {
  if (!t.defined() || !t.is_cpu() || t.numel() == 0) return;
  constexpr std::int64_t kMost = std::int64_t{1} << 48;
  const auto low = t.min().item<std::int64_t>(), high = t.max().item<std::int64_t>();
  TORCH_CHECK(low >= 0 && high <= kMost, op, ": ", name, " must lie in [0, ", kMost, "], got ",
              low < 0 ? low : high);
}

void check_range(const char* op, const char* name, const Tensor& t, std::int64_t low,
                 std::int64_t high) {
  if (!t.is_cpu()) return;
  const Tensor flat = t.contiguous();
  const auto* values = flat.const_data_ptr<std::int32_t>();
  const auto [least, most] = std::minmax_element(values, values + flat.numel());
  if (flat.numel() == 0 || (*least >= low && *most <= high)) return;
  TORCH_CHECK(false, op, ": ", name, " must lie in [", low, ", ", high, "], got ",
              *least < low ? *least : *most);
}

}  // namespace performer
