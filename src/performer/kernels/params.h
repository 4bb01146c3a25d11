#pragma once

#include <cstdint>

/// What a fused FAVOR+ kernel is given: plain pointers, sizes and strides. No torch headers here.
namespace performer::kernels {

/// exponential: positive, loglinear and hyperbolic, and exp(u) + eps. The others are f(u) + eps.
enum class Map : std::uint8_t {
  kExponential,
  kRelu,
  kSigmoid,
  kAbs,
  kGelu,
  kCos,
  kTanh,
  kIdentity,
  kSquare,
  kElu1,
  kSgn,
};

enum class Dtype : std::uint8_t { kFloat, kBfloat16, kHalf };

/// A tensor [batch, heads, tokens, width]; strides in elements.
struct TokenView {
  void* data = nullptr;
  std::int64_t batch = 0, head = 0, token = 0, element = 0;
};

/// A parameter [heads, ...], contiguous; heads divides the number of heads that read it.
struct Parameter {
  const void* data = nullptr;  // null: absent
  bool wide = false;           // float64, else float32
  std::int64_t heads = 1;
};

/// The state (S, z, c) of performer/ops/favor/state.h, contiguous: [N, Hs, M', Dv], [N, Hs, M'].
struct StateView {
  float* kv = nullptr;  // null: absent
  float* normalizer = nullptr;
  std::int32_t* log2_scale = nullptr;
};

/// The near field of a state: what the next token sees exactly, in 2 b places of which the first b
/// are the block before. [N, Hk, 2b, D], [N, Hk, 2b, Dv], [N, Hs, 2b] and [N], contiguous.
struct NearStateView {
  float* keys = nullptr;  // null where D is 0, too
  float* values = nullptr;
  float* bias = nullptr;             // null: absent; -inf where no key is
  std::int64_t* position = nullptr;  // tokens so far
};

/// A number per token and head, [batch, heads, tokens]; heads divides the number that read it.
struct TokenBias {
  const float* data = nullptr;  // null: 0
  std::int64_t heads = 1, batch = 0, head = 0, token = 0;
};

/// One call of favor_attention.
struct FavorProblem {
  Map map = Map::kExponential;
  Dtype dtype = Dtype::kFloat;  // of q, k, v, out and their gradients
  bool causal = false;
  bool norm_term = false;  // keys carry exp(-|y|^2 / 2)
  bool mirrored = false;   // hyperbolic: the features of W, then those of -W
  double scale = 1;        // x = sqrt(scale) q, y = sqrt(scale) k
  double eps = 0;          // 0 for softmax maps
  std::int64_t near = 0;   // tokens of a block of the exact near field; 0: none
  double far_log2 = 0;     // log2 of what far weights phi phi carry beside: 1/m (near > 0)

  std::int64_t batch = 0, heads = 0, key_heads = 0, state_heads = 0;
  std::int64_t dim = 0, value_dim = 0;
  std::int64_t features = 0;  // M', with the mirrored half

  std::int64_t sequences = 0;                   // batch, or the number of packed sequences
  const std::int64_t* query_offsets = nullptr;  // [sequences + 1]; null: dense
  const std::int64_t* key_offsets = nullptr;
  std::int64_t query_length = 0, key_length = 0;

  TokenView q, k, v;
  Parameter w_query, w_key;        // [heads, M, D]; absent: f(x)
  Parameter bias_query, bias_key;  // [heads, M']
  const bool* key_mask = nullptr;  // [B, Lk]
  std::int64_t mask_batch = 0, mask_token = 0;
  const float* key_bias = nullptr;  // [B, heads, Lk]
  std::int64_t key_bias_heads = 1, key_bias_batch = 0, key_bias_head = 0, key_bias_token = 0;
  TokenBias query_bias;  // of far weights
  StateView initial;
  NearStateView near_initial;
};

struct ForwardOutputs {
  TokenView out;
  float* row_sum = nullptr;  // [B, H, Lq] contiguous
  std::int32_t* row_log2_scale = nullptr;
  StateView state;
  NearStateView near_state;
};

struct BackwardInputs {
  TokenView grad_out;
  const float* row_sum = nullptr;
  const std::int32_t* row_log2_scale = nullptr;
  StateView state;       // final
  StateView grad_state;  // of the final state (log2_scale unused); null: 0
  TokenView out;         // of the forward pass; read by the CUDA kernels alone
};

struct BackwardOutputs {
  TokenView q, k, v;
  StateView state;  // of the initial state (log2_scale unused); null: not asked for
  StateView sums;   // room for one state (log2_scale unused) per sequence and head, bidirectional
};

/// Runs body(context, task) for every task below `tasks`, on `threads` threads at most.
struct Executor {
  int threads = 1;
  void (*run)(int tasks, void (*body)(void* context, int task), void* context) = nullptr;
};

}  // namespace performer::kernels
