// A stream of tokens: the state holds all keys and values so far, and never grows.
#include <ATen/ATen.h>
#include <performer/performer.h>

#include <iostream>
#include <tuple>

int main() {
  at::manual_seed(0);
  const std::int64_t heads = 8, prompt = 512, steps = 64, dim = 64;
  const auto W = performer::draw_projection(256, dim, {.heads = heads, .seed = 1});
  const auto q = at::randn({1, heads, prompt + steps, dim});  // [B, H, L, D]
  const auto k = at::randn_like(q), v = at::randn_like(q);
  const auto part = [](const at::Tensor& x, std::int64_t from, std::int64_t count) {
    return x.narrow(2, from, count);
  };

  performer::FavorOptions options;
  options.causality = performer::Causality::kCausal;

  // The prompt in one call: as fast as training, and it leaves the state behind.
  auto [out, state] = performer::favor_attention_with_state(part(q, 0, prompt), part(k, 0, prompt),
                                                            part(v, 0, prompt), W, options);
  std::cout << "after " << prompt << " tokens the state has " << state.nbytes() << " bytes\n";

  // Then one token at a time, each at the same cost. Keeping an old state forks the stream: steps return
  // new ones and write to none.
  at::Tensor last;
  for (std::int64_t t = prompt; t < prompt + steps; ++t) {
    std::tie(last, state) =
        performer::favor_step(part(q, t, 1), part(k, t, 1), part(v, t, 1), W, state, options);
  }
  std::cout << "after " << prompt + steps << " tokens it has " << state.nbytes() << " bytes\n";

  // The last step saw what one pass over everything sees.
  const auto whole = performer::favor_attention(q, k, v, W, options);
  const auto apart = (last - whole.narrow(2, prompt + steps - 1, 1)).abs().max().item<double>();
  std::cout << "the last step and one pass over all differ by " << apart << "\n";
  return apart < 1e-4 ? 0 : 1;
}
