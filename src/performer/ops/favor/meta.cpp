#include <torch/library.h>

#include "performer/ops/favor/schema.h"

// Shapes, dtypes and strides alone: torch.compile, torch.export and fake tensors run these.
namespace performer {
namespace {

FavorResult forward_meta(const FavorArgs& args) {
  check_favor_args(args);
  return allocate_result(args);
}

FavorGradients backward_meta(const FavorSaved& saved, const FavorArgs& args) {
  check_favor_args(args);
  check_favor_saved(saved, args);
  return allocate_gradients(args, saved.needs);
}

}  // namespace

TORCH_LIBRARY_IMPL(performer, Meta, m) {
  m.impl("favor_attention", kForwardEntry<&forward_meta>);
  m.impl("favor_attention_backward", kBackwardEntry<&backward_meta>);
}

}  // namespace performer
