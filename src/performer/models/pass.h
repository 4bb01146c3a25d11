#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

#include "performer/models/attention_core.h"
#include "performer/models/decode_state.h"
#include "performer/models/dropout.h"

namespace performer::models {

/// Is shown the heads of every layer, as its attention gets them.
using SeeHeads = std::function<void(std::int64_t layer, const Heads& heads)>;

/// What a pass through the model hands to every layer. Copied where a block is recomputed later.
struct Pass {
  Tensor key_mask;                // bool [B, L], true = a real key; undefined: all are
  Tensor turns;                   // [L, D/2] complex: rotary positions; undefined: none
  DropoutKey dropout{};           // of this pass; a layer takes its child
  DecodeState* decode = nullptr;  // given: continue this stream
  const SeeHeads* see = nullptr;
};

}  // namespace performer::models
