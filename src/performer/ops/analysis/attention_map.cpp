#include "performer/ops/analysis/attention_map.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <vector>

#include "performer/ops/checks.h"
#include "performer/ops/exact/softmax_rows.h"

namespace performer {
namespace {

// Elements of one block of columns before rows are chosen or pooled.
constexpr std::int64_t kMapBlock = std::int64_t{1} << 24;

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

struct IndexRule {
  const char* name;
  const Tensor& of;  // q or k: whose positions
};

void check_index(const char* op, const IndexRule& rule, const Tensor& index) {
  if (!index.defined()) return;
  const auto& [name, of] = rule;
  const std::int64_t length = of.size(2);
  check_dense(op, name, index);
  TORCH_CHECK(index.is_cpu() || index.device() == of.device(), op, ": ", name,
              " must be on the CPU or the device of q, ", of.device(), ", got ", index.device());
  const bool integral = index.scalar_type() == at::kLong || index.scalar_type() == at::kInt;
  TORCH_CHECK(index.dim() == 1 && integral, op, ": ", name, " must be int64 or int32 [n], got ",
              index.scalar_type(), " ", index.sizes());
  if (!has_values(index) || index.numel() == 0) return;
  const auto low = index.min().item<std::int64_t>(), high = index.max().item<std::int64_t>();
  TORCH_CHECK(low >= 0 && high < length, op, ": ", name, " must be in [0, ", length, "), got ",
              low < 0 ? low : high);
}

void check_selection(const char* op, const MapSelection& s, const Tensor& q, const Tensor& k) {
  check_index(op, {"rows", q}, s.rows);
  check_index(op, {"columns", k}, s.columns);
  if (!s.pool) return;
  TORCH_CHECK(*s.pool > 0, op, ": pool must be positive, got ", *s.pool);
  TORCH_CHECK(!s.rows.defined() && !s.columns.defined(), op,
              ": pool takes the whole map, not chosen rows or columns, got pool = ", *s.pool);
}

// A block larger than the map is the whole of it.
std::int64_t clamped_pool(const MapSelection& s, const Tensor& q, const Tensor& k) {
  const std::int64_t longest = std::max<std::int64_t>(1, std::max(q.size(2), k.size(2)));
  return std::min(s.pool.value_or(1), longest);
}

Tensor positions_or_all(const Tensor& index, std::int64_t length, const Tensor& like) {
  return index.defined() ? index.to(like.device(), at::kLong)
                         : at::arange(length, like.options().dtype(at::kLong));
}

// Mean over blocks of `pool` rows: [B, H, L, C] -> [B, H, ceil(L / pool), C].
Tensor pool_rows(const Tensor& map, std::int64_t pool) {
  const std::int64_t length = map.size(2), blocks = ceil_div(length, pool);
  const Tensor padded = at::constant_pad_nd(map, {0, 0, 0, blocks * pool - length});
  const Tensor first = at::arange(blocks, map.options()) * pool;
  const Tensor counts = (length - first).clamp_max(pool).unsqueeze(1);
  return padded.unflatten(2, {blocks, pool}).sum(3) / counts;
}

// Sum over blocks of `pool` columns: [B, H, L, C] -> [B, H, L, ceil(C / pool)].
Tensor pool_columns(const Tensor& map, std::int64_t pool) {
  const std::int64_t blocks = ceil_div(map.size(3), pool);
  const Tensor padded = at::constant_pad_nd(map, {0, blocks * pool - map.size(3)});
  return padded.unflatten(3, {blocks, pool}).sum(4);
}

void check_unpacked(const FavorOptions& options) {
  constexpr const char* kOp = "attention_map";
  TORCH_CHECK(!options.cu_seqlens_q.defined() && !options.cu_seqlens_k.defined(), kOp,
              ": packed sequences have no one map; pass each sequence alone, got cu_seqlens");
  TORCH_CHECK(!options.initial_state.defined(), kOp,
              ": a state holds no separate keys; pass them in k, got an initial_state");
}

}  // namespace

Tensor attention_map(const Tensor& q, const Tensor& k, const Tensor& W, const FavorOptions& options,
                     const MapSelection& selection) {
  constexpr const char* kOp = "attention_map";
  check_heads(kOp, q, k);
  check_unpacked(options);
  check_selection(kOp, selection, q, k);
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const auto dtype = q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const bool placed = options.causality == Causality::kCausal || options.near > 0;
  const Tensor rows =
      selection.rows.defined() ? selection.rows.to(q.device(), at::kLong) : Tensor();
  // Causal attention and the near field need every query in its place; otherwise only the chosen ones
  // are computed.
  const Tensor queries =
      (rows.defined() && !placed ? q.index_select(2, rows) : q).to(dtype);  // [B, H, R, D]
  const Tensor keys = k.to(dtype);
  const std::int64_t pool = clamped_pool(selection, q, k);
  const Tensor group = at::arange(k.size(2), q.options().dtype(at::kLong)).floor_divide(pool);
  const Tensor columns = positions_or_all(selection.columns, ceil_div(k.size(2), pool), q);
  const std::int64_t row_elements =
      std::max<std::int64_t>(q.size(0) * q.size(1) * std::max(queries.size(2), k.size(2)), 1);
  const std::int64_t width = std::clamp<std::int64_t>(kMapBlock / row_elements, 16, 1024);
  std::vector<Tensor> blocks;
  std::int64_t start = 0;
  do {
    const std::int64_t count = std::min(width, columns.size(0) - start);
    const Tensor one_hot = group.unsqueeze(1) == columns.narrow(0, start, count);  // [Lk, C]
    const Tensor values =
        one_hot.to(dtype).expand({k.size(0), k.size(1), k.size(2), count});  // [B, Hkv, Lk, C]
    Tensor block = favor_attention(queries, keys, values, W, options);       // [B, H, R, C]
    if (placed && rows.defined()) block = block.index_select(2, rows);
    if (selection.pool) block = pool_rows(block, pool);
    blocks.push_back(block);
    start += count;
  } while (start < columns.size(0));
  return at::cat(blocks, 3);
}

Tensor exact_attention_map(const Tensor& q, const Tensor& k, const ExactOptions& options,
                           const MapSelection& selection) {
  constexpr const char* kOp = "exact_attention_map";
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const SoftmaxRows exact(kOp, q, k, options);
  check_selection(kOp, selection, q, k);
  const Tensor rows = positions_or_all(selection.rows, q.size(2), q);
  const Tensor queries = selection.rows.defined() ? q.index_select(2, rows) : q;
  const std::int64_t pool = clamped_pool(selection, q, k);
  const std::int64_t step = ceil_div(exact.block_rows(), pool) * pool;
  std::vector<Tensor> blocks;
  std::int64_t start = 0;
  do {
    const std::int64_t count = std::min(step, rows.size(0) - start);
    const Tensor products = exact.products(queries.narrow(2, start, count));
    Tensor block = exact.weights(products, rows.narrow(0, start, count));  // [B, H, R, Lk]
    if (selection.columns.defined()) {
      block = block.index_select(3, selection.columns.to(q.device(), at::kLong));
    }
    if (selection.pool) block = pool_rows(pool_columns(block, pool), pool);
    blocks.push_back(block);
    start += count;
  } while (start < rows.size(0));
  return at::cat(blocks, 2);
}

}  // namespace performer
