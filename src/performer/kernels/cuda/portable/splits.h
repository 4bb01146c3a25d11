#pragma once

#include <algorithm>
#include <cstdint>

#include "performer/kernels/cuda/common/splits.h"
#include "performer/kernels/cuda/common/workspace.h"
#include "performer/kernels/cuda/kernels.h"
#include "performer/kernels/cuda/portable/state.h"

// Into how many splits the tokens of a sequence are cut, and where their states lie in a workspace.
namespace performer::kernels::cuda::portable {

/// blocks: of one split. A block takes as long as its tiles and one more, and two run at a time on
/// a multiprocessor: the number of splits with the shortest time, at most four waves, the fewest.
inline int choose_splits(std::int64_t blocks, std::int64_t tiles, std::int64_t most,
                         const Device& device) {
  const std::int64_t slots = 2 * std::max<std::int64_t>(1, device.multiprocessors);
  if (blocks == 0) return 1;
  most = std::min({most, tiles, 4 * slots / blocks});
  return cheapest_parts(most, 20, [&](std::int64_t splits) {
    return divide_up(blocks * splits, slots) * (divide_up(tiles, splits) + 1);
  });
}

/// Splits whose partial states (with scales) fit `bytes`, at least one. tokens: of a sequence, or
/// as many as one may have.
inline int state_splits(const FavorProblem& p, std::int64_t tokens, std::int64_t bytes,
                        const Device& device) {
  const std::int64_t slice = p.value_dim > 64 || p.features <= 64 ? 64 : 128;
  const std::int64_t states = p.sequences * p.state_heads;
  const std::int64_t state_bytes = states * p.features * (p.value_dim + 2) * 4;
  const std::int64_t most = bytes / std::max<std::int64_t>(1, state_bytes);
  return choose_splits(states * divide_up(p.features, slice), divide_up(tokens, 64), most, device);
}

/// Room for the splits' states; none for a single split, which goes where the result goes.
inline Partials take_partials(Workspace& workspace, const FavorProblem& p, int splits) {
  if (splits == 1) return {};
  const std::int64_t rows = p.sequences * p.state_heads * splits * p.features;
  Partials partials;
  partials.kv = workspace.take<float>(rows * p.value_dim);
  partials.normalizer = workspace.take<float>(rows);
  partials.log2_scale = workspace.take<std::int32_t>(rows);
  return partials;
}

}  // namespace performer::kernels::cuda::portable
