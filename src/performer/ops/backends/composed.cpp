#include "performer/ops/backends/composed.h"

#include <ATen/ATen.h>

#include <functional>

#include "performer/ops/backends/composed/backward.h"
#include "performer/ops/backends/composed/forward.h"
#include "performer/ops/backends/composed/near/backward.h"
#include "performer/ops/backends/composed/near/forward.h"

namespace performer::backends {
namespace {

using composed::BackwardInputs;
using composed::BackwardOutputs;
using composed::DenseCall;
using composed::ForwardOutputs;

/// One sequence of a packed call: its rows of q, of k, and its state.
struct Segment {
  std::int64_t index, q_start, q_length, k_start, k_length;

  Tensor queries(const Tensor& t) const { return narrow(t, 2, q_start, q_length); }
  Tensor keys(const Tensor& t, std::int64_t dim) const { return narrow(t, dim, k_start, k_length); }
  Tensor state(const Tensor& t) const { return narrow(t, 0, index, 1); }

  FavorArgs args(const FavorArgs& a) const {
    FavorArgs s = a;
    s.q = queries(a.q), s.k = keys(a.k, 2), s.v = keys(a.v, 2);
    s.key_mask = keys(a.key_mask, 1), s.key_bias = keys(a.key_bias, -1);
    s.state_kv = state(a.state_kv), s.state_normalizer = state(a.state_normalizer);
    s.state_log2_scale = state(a.state_log2_scale);
    s.query_bias = narrow(a.query_bias, -1, q_start, q_length);
    s.state_near_keys = state(a.state_near_keys), s.state_near_values = state(a.state_near_values);
    s.state_near_bias = state(a.state_near_bias);
    s.state_near_position = state(a.state_near_position);
    s.cu_seqlens_q = s.cu_seqlens_k = Tensor();
    return s;
  }

 private:
  static Tensor narrow(const Tensor& t, std::int64_t dim, std::int64_t start, std::int64_t length) {
    return t.defined() ? t.narrow(dim, start, length) : t;
  }
};

// Calls `body` once per dense problem: the whole call, or each packed sequence.
void for_each_segment(const FavorArgs& args, const std::function<void(const Segment&)>& body) {
  const PackedOffsets offsets = check_packed_offsets(args);
  const auto* q = offsets.q.const_data_ptr<std::int64_t>();
  const auto* k = offsets.k.const_data_ptr<std::int64_t>();
  for (std::int64_t n = 0; n + 1 < offsets.q.numel(); ++n) {
    body({n, q[n], q[n + 1] - q[n], k[n], k[n + 1] - k[n]});
  }
}

// A zeroed accumulator [heads, ...] for a parameter's gradient; undefined when not needed.
Tensor accumulator(const Tensor& p, bool needed, std::int64_t trailing, at::ScalarType dtype) {
  if (!needed) return {};
  const Tensor zeros = at::zeros(p.sizes(), p.options().dtype(dtype));
  return p.dim() == trailing ? zeros.unsqueeze(0) : zeros;
}

// [B, L] or [B, heads, L] -> [B, heads, L]
Tensor with_head_axis(const Tensor& bias) {
  return bias.defined() && bias.dim() == 2 ? bias.unsqueeze(1) : bias;
}

void forward_dense(const FavorArgs& args, const ForwardOutputs& outputs) {
  args.near > 0 ? composed::near_forward(args, outputs)
                : composed::forward(DenseCall(args), outputs);
}

void backward_dense(const FavorArgs& args, const BackwardInputs& in, const BackwardOutputs& out) {
  args.near > 0 ? composed::near_backward(args, in, out)
                : composed::backward(DenseCall(args), in, out);
}

}  // namespace

void forward_composed(const FavorArgs& args, const FavorResult& r) {
  const ForwardOutputs all{r.out,        r.row_sum,      r.row_log2_scale, r.kv,
                           r.normalizer, r.log2_scale,   r.near_keys,      r.near_values,
                           r.near_bias,  r.near_position};
  if (!args.packed()) return forward_dense(args, all);
  for_each_segment(args, [&](const Segment& s) {
    ForwardOutputs o{s.queries(all.out), s.queries(all.row_sum),  s.queries(all.row_log2_scale),
                     s.state(all.kv),    s.state(all.normalizer), s.state(all.log2_scale)};
    if (args.near > 0) {
      o.near_keys = s.state(all.near_keys), o.near_values = s.state(all.near_values);
      o.near_bias = s.state(all.near_bias), o.near_position = s.state(all.near_position);
    }
    forward_dense(s.args(args), o);
  });
}

void backward_composed(const FavorSaved& saved, const FavorArgs& args,
                       const FavorGradients& grads) {
  const FavorResult& r = saved.result;
  const auto grad = [&](Tensor FavorArgs::*of) { return grads[gradient_of(of)]; };
  const auto sum_of = [&](Tensor FavorArgs::*of, std::int64_t trailing) {
    return accumulator(args.*of, saved.needs_gradient(of), trailing, args.accumulate());
  };
  BackwardInputs in{saved.grad_out,
                    r.row_sum,
                    r.row_log2_scale,
                    r.kv,
                    r.normalizer,
                    r.log2_scale,
                    saved.grad_kv,
                    saved.grad_normalizer,
                    {},
                    {},
                    {}};
  if (args.near > 0) {
    in.grad_near_keys = saved.grad_near_keys, in.grad_near_values = saved.grad_near_values;
    in.grad_near_bias = saved.grad_near_bias;
  }
  BackwardOutputs out{grad(&FavorArgs::q),
                      grad(&FavorArgs::k),
                      grad(&FavorArgs::v),
                      sum_of(&FavorArgs::projection, 2),
                      sum_of(&FavorArgs::projection_k, 2),
                      sum_of(&FavorArgs::bias_q, 1),
                      sum_of(&FavorArgs::bias_k, 1),
                      {},
                      {},
                      {},
                      {},
                      {},
                      {},
                      {}};
  if (saved.needs_gradient(&FavorArgs::key_bias)) {
    out.key_bias = with_head_axis(grad(&FavorArgs::key_bias));
  }
  if (saved.needs_gradient(&FavorArgs::state_kv)) {
    out.state_kv = grad(&FavorArgs::state_kv);
    out.state_normalizer = grad(&FavorArgs::state_normalizer);
  }
  const auto needed = [&](Tensor FavorArgs::*of) {
    return saved.needs_gradient(of) ? grad(of) : Tensor();
  };
  out.query_bias = with_head_axis(needed(&FavorArgs::query_bias));
  out.state_near_keys = needed(&FavorArgs::state_near_keys);
  out.state_near_values = needed(&FavorArgs::state_near_values);
  out.state_near_bias = needed(&FavorArgs::state_near_bias);

  if (args.packed()) {
    for_each_segment(args, [&](const Segment& s) {
      BackwardInputs i{s.queries(in.grad_out),       s.queries(in.row_sum),
                       s.queries(in.row_log2_scale), s.state(in.kv),
                       s.state(in.normalizer),       s.state(in.log2_scale),
                       s.state(in.grad_kv),          s.state(in.grad_normalizer),
                       s.state(in.grad_near_keys),   s.state(in.grad_near_values),
                       s.state(in.grad_near_bias)};
      BackwardOutputs o = out;
      o.q = s.queries(out.q), o.k = s.keys(out.k, 2), o.v = s.keys(out.v, 2);
      o.key_bias = s.keys(out.key_bias, 2);
      o.query_bias = s.queries(out.query_bias);
      o.state_kv = s.state(out.state_kv), o.state_normalizer = s.state(out.state_normalizer);
      o.state_near_keys = s.state(out.state_near_keys);
      o.state_near_values = s.state(out.state_near_values);
      o.state_near_bias = s.state(out.state_near_bias);
      backward_dense(s.args(args), i, o);
    });
  } else {
    backward_dense(args, in, out);
  }
  const auto store = [&](Tensor FavorArgs::*of, const Tensor& sum) {
    if (sum.defined()) grad(of).copy_(sum.view_as(grad(of)));
  };
  store(&FavorArgs::projection, out.projection);
  store(&FavorArgs::projection_k, out.projection_k);
  store(&FavorArgs::bias_q, out.bias_q);
  store(&FavorArgs::bias_k, out.bias_k);
}

}  // namespace performer::backends
