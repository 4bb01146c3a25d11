// FAVOR+ beside exact softmax attention: what it computes, and whether the features suffice.
#include <ATen/ATen.h>
#include <performer/performer.h>

#include <iostream>

int main() {
  at::manual_seed(0);
  const std::int64_t batch = 1, heads = 4, length = 2048, dim = 64;

  // Random features suit queries and keys of small norm; values follow their keys, so that
  // attention has something to find.                             [B, H, L, D]
  const auto q = 0.3 * at::randn({batch, heads, length, dim});
  const auto k = 0.3 * at::randn({batch, heads, length, dim});
  const auto v = k.clone();
  const auto exact = performer::exact_attention(q, k, v);

  // More features, less error: it falls with the square root of their number.
  std::cout << "features  error of the output\n";
  for (const std::int64_t features : {64, 256, 1024}) {
    // One orthogonal projection per head, the same bits on every machine: [H, M, D].
    const auto W = performer::draw_projection(features, dim, {.heads = heads, .seed = 1});
    const auto out = performer::favor_attention(q, k, v, W);
    std::cout << features << "  " << ((out - exact).norm() / exact.norm()).item<double>() << "\n";
  }

  // On data of your own there may be no exact result to compare with: the meter samples rows.
  const auto W = performer::draw_projection(256, dim, {.heads = heads, .seed = 1});
  std::cout << performer::verdict(performer::approximation_quality(q, k, v, W)) << "\n";

  // Gradients flow as through any other operator, in linear time and memory.
  performer::FavorOptions causal;
  causal.causality = performer::Causality::kCausal;
  const auto leaf = q.clone().requires_grad_();
  performer::favor_attention(leaf, k, v, W, causal).square().mean().backward();
  std::cout << "gradient of q: " << leaf.grad().sizes() << "\n";
}
