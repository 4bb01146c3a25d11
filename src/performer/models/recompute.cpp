#include "performer/models/recompute.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include "performer/models/kept.h"

namespace performer::models {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Segment {
  BlockImpl* block;
  Pass pass;
};

class Checkpointed : public torch::autograd::Function<Checkpointed> {
 public:
  // The parameters are arguments so that their gradients leave through this node.
  static Tensor forward(AutogradContext* ctx, const Tensor& x, at::TensorList parameters,
                        const Segment& segment) {
    variable_list saved{x};
    saved.insert(saved.end(), parameters.begin(), parameters.end());
    ctx->save_for_backward(saved);
    Kept<Segment>::put(ctx, segment);
    const at::NoGradGuard no_grad;
    return segment.block->forward(x, segment.pass);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto& [block, pass] = Kept<Segment>::get(ctx);
    auto inputs = ctx->get_saved_variables();
    inputs[0] = inputs[0].detach().requires_grad_();
    Tensor out;
    {
      const at::AutoGradMode with_grad(true);
      out = block->forward(inputs[0], pass);
    }
    auto results = torch::autograd::grad({out}, inputs, grads, /*retain_graph=*/false,
                                         /*create_graph=*/false, /*allow_unused=*/true);
    results.emplace_back();  // segment
    return results;
  }
};

}  // namespace

Tensor run_recomputed(BlockImpl& block, const Tensor& x, const Pass& pass) {
  if (!at::GradMode::is_enabled() || pass.decode != nullptr) return block.forward(x, pass);
  const auto parameters = block.parameters();
  return Checkpointed::apply(x, at::TensorList(parameters), Segment{&block, pass});
}

}  // namespace performer::models
