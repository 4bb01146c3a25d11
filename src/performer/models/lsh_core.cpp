#include "performer/models/lsh_core.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "performer/core/error.h"
#include "performer/models/lsh_slots.h"
#include "performer/models/random_matrix.h"

namespace performer::models {
namespace {

constexpr std::int64_t kMostBuckets = 128;
constexpr double kSelf = -1e5;        // a token's own key: last choice
constexpr double kForbidden = -1e30;  // finite, so that a row without keys stays finite

// t: [B, H, L, D], index: [B, H, R, S] -> [B, H, R, S, D].
Tensor take_rows(const Tensor& t, const Tensor& index) {
  const std::int64_t width = t.size(-1);
  auto sizes = index.sizes().vec();
  sizes.push_back(width);
  return t.unsqueeze(2)
      .expand({t.size(0), t.size(1), index.size(2), t.size(2), width})
      .gather(3, index.unsqueeze(-1).expand(sizes));
}

// Each chunk with the one before it: [..., N, c, ...] -> [..., N, 2c, ...]; none before the first.
Tensor with_previous(const Tensor& chunks, std::int64_t dim, double fill) {
  const Tensor first = at::full_like(chunks.narrow(dim, 0, 1), fill);
  const Tensor before = at::cat({first, chunks.narrow(dim, 0, chunks.size(dim) - 1)}, dim);
  return at::cat({before, chunks}, dim + 1);
}

struct Round {
  Tensor out;  // [B, H, R, S, D]
  Tensor sum;  // [B, H, R, S] log of the sum of weights
};

// Attention of the slots to the chunk and its predecessor.
Round attend_chunks(const Tensor& q, const Tensor& v, const LshSlots& slots, bool causal) {
  const std::int64_t length = q.size(2);
  const Tensor index = slots.token_of_slot.clamp_max(length - 1);
  const std::int64_t count = slots.continues.size(-1);
  const auto chunked = [&](const Tensor& t) { return t.unflatten(3, {count, t.size(3) / count}); };
  const Tensor queries = chunked(take_rows(q, index));  // [B, H, R, N, c, D]
  const Tensor norm = queries.to(sum_type(q)).square().sum(-1, true).add(1e-6).rsqrt();
  const Tensor keys = with_previous(queries * norm.to(queries.scalar_type()), 3, 0);
  const Tensor values = with_previous(chunked(take_rows(v, index)), 3, 0);

  const Tensor at_query = chunked(slots.token_of_slot);  // [B, H, R, N, c]
  const Tensor at_key = with_previous(at_query, 3, static_cast<double>(length)).unsqueeze(-2);
  const Tensor own = at_query.unsqueeze(-1);
  Tensor hidden = causal ? at_key.gt(own) : at_key.eq(length);  // empty slots are after all tokens
  const std::int64_t chunk = at_query.size(-1);
  hidden = hidden.logical_or(
      at::cat({slots.continues.logical_not().unsqueeze(-1).expand({-1, -1, -1, -1, chunk}),
               at::zeros({1}, hidden.options()).expand_as(at_query)},
              -1)
          .unsqueeze(-2));
  const Tensor weights = at::matmul(queries, keys.transpose(-1, -2))
                             .to(sum_type(q))
                             .masked_fill(at_key.eq(own), kSelf)
                             .masked_fill(hidden, kForbidden);  // [B, H, R, N, c, 2c]
  const Tensor sum = weights.logsumexp(-1, /*keepdim=*/true);
  const Tensor out = at::matmul((weights - sum).exp().to(values.scalar_type()), values);
  return {out.flatten(3, 4), sum.squeeze(-1).flatten(3, 4)};
}

}  // namespace

LshCore::LshCore(const ModelConfig& config, std::int64_t layer)
    : config_(config.attention),
      layer_(layer),
      head_dim_(config.head_dim()),
      causal_(config.causal) {
  redraw(0);
}

void LshCore::redraw(std::int64_t draw) {
  const std::int64_t half = (config_.lsh_buckets > 0 ? config_.lsh_buckets : kMostBuckets) / 2;
  rotations_ = random_matrix(config_.lsh_hashes * head_dim_, half, {config_, layer_, draw})
                   .view({config_.lsh_hashes, head_dim_, half});
}

std::int64_t LshCore::num_buckets(std::int64_t length) const {
  if (config_.lsh_buckets > 0) return config_.lsh_buckets;
  return std::clamp<std::int64_t>(length / (4 * config_.lsh_chunk) * 2, 2, kMostBuckets);
}

// Buckets [B, H, R, L]; masked tokens have one of their own, the last, where they disturb no other.
Tensor LshCore::hash(const Tensor& q, const Tensor& key_mask) {
  const at::NoGradGuard no_grad;
  if (rotations_.device() != q.device()) rotations_ = rotations_.to(q.device());
  const std::int64_t buckets = num_buckets(q.size(2));
  const Tensor turned =
      at::matmul(q.detach().to(at::kFloat).unsqueeze(2), rotations_.narrow(2, 0, buckets / 2));
  Tensor found = at::cat({turned, -turned}, -1).argmax(-1);
  if (key_mask.defined()) {
    found = found.masked_fill(key_mask.logical_not().unsqueeze(1).unsqueeze(1), buckets);
  }
  return found;
}

Tensor LshCore::forward(const Heads& heads, const Tensor& key_mask) {
  if (heads.q.size(2) == 0) return heads.v;
  const Tensor buckets = hash(heads.q, key_mask);
  const auto slots = assign_slots(buckets, num_buckets(heads.q.size(2)) + 1, config_.lsh_chunk);
  const Tensor q = config_.scale > 0 ? heads.q * config_.scale : heads.q;
  const Round round = attend_chunks(q, heads.v, slots, causal_);

  auto sizes = slots.slot_of_token.sizes().vec();
  sizes.push_back(heads.v.size(-1));
  const Tensor rows = round.out.gather(3, slots.slot_of_token.unsqueeze(-1).expand(sizes));
  const Tensor share = round.sum.gather(3, slots.slot_of_token).softmax(2);  // [B, H, R, L]
  Tensor out = (rows * share.unsqueeze(-1).to(rows.scalar_type())).sum(2);
  if (key_mask.defined()) {
    out = out.masked_fill(key_mask.logical_not().unsqueeze(1).unsqueeze(-1), 0);
  }
  return out;
}

Tensor LshCore::decode(const Heads& /*heads*/, LayerState& /*state*/, std::int64_t /*position*/) {
  fail(ExitCode::kUsage, "decode: lsh attention has no streaming state; use another kind");
}

}  // namespace performer::models
