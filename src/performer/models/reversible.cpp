#include "performer/models/reversible.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <functional>
#include <utility>

#include "performer/models/kept.h"

namespace performer::models {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Stack {
  std::vector<Block>* blocks;
  Pass pass;
};

struct Streams {
  Tensor a, b;
};

Streams run_plain(std::vector<Block>& blocks, const Tensor& x, const Pass& pass) {
  Streams s{x, x};
  for (auto& block : blocks) {
    s.a = s.a + block->attend(s.b, pass);
    s.b = s.b + block->feed(s.a, pass);
  }
  return s;
}

// The gradients of one branch at `input`, given that of its output: of the input first, then of the
// parameters. `value` receives the output.
variable_list branch_gradients(const std::function<Tensor(const Tensor&)>& branch,
                               const Tensor& input, variable_list parameters, const Tensor& grad,
                               Tensor& value) {
  const Tensor leaf = input.detach().requires_grad_();
  Tensor out;
  {
    const at::AutoGradMode with_grad(true);
    out = branch(leaf);
  }
  value = out.detach();
  parameters.insert(parameters.begin(), leaf);
  return torch::autograd::grad({out}, parameters, {grad}, /*retain_graph=*/false,
                               /*create_graph=*/false, /*allow_unused=*/true);
}

// Adds the gradients of a branch, which are undefined for the other branch's parameters.
void add_to(Tensor* totals, const variable_list& found) {
  for (std::size_t i = 1; i < found.size(); ++i) {
    Tensor& total = totals[i - 1];
    if (found[i].defined()) total = total.defined() ? total + found[i] : found[i];
  }
}

// Steps one block back: s from its outputs to its inputs, d likewise.
void step_back(BlockImpl& block, const Pass& pass, Streams& s, Streams& d, Tensor* totals) {
  const auto parameters = block.parameters();
  Tensor value;
  auto found = branch_gradients([&](const Tensor& t) { return block.feed(t, pass); }, s.a,
                                parameters, d.b, value);
  s.b = s.b - value;
  d.a = d.a + found[0];
  add_to(totals, found);
  found = branch_gradients([&](const Tensor& t) { return block.attend(t, pass); }, s.b, parameters,
                           d.a, value);
  s.a = s.a - value;
  d.b = d.b + found[0];
  add_to(totals, found);
}

class Reversible : public torch::autograd::Function<Reversible> {
 public:
  static variable_list forward(AutogradContext* ctx, const Tensor& x, at::TensorList parameters,
                               const Stack& stack) {
    const at::NoGradGuard no_grad;
    const Streams s = run_plain(*stack.blocks, x, stack.pass);
    ctx->save_for_backward({s.a, s.b});
    ctx->saved_data["parameters"] = static_cast<std::int64_t>(parameters.size());
    Kept<Stack>::put(ctx, stack);
    return {s.a, s.b};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto& [blocks, pass] = Kept<Stack>::get(ctx);
    const auto saved = ctx->get_saved_variables();
    Streams s{saved[0], saved[1]}, d{grads[0], grads[1]};
    variable_list results(static_cast<std::size_t>(ctx->saved_data["parameters"].toInt()) + 2);
    Tensor* totals = results.data() + results.size() - 1;
    for (auto block = blocks->rbegin(); block != blocks->rend(); ++block) {
      totals -= (*block)->parameters().size();
      step_back(**block, pass, s, d, totals);
    }
    results[0] = d.a + d.b;
    return results;
  }
};

}  // namespace

Tensor run_reversible(std::vector<Block>& blocks, const Tensor& x, const Pass& pass,
                      Reversal reversal) {
  const bool plain =
      reversal == Reversal::kStore || !at::GradMode::is_enabled() || pass.decode != nullptr;
  Streams out;
  if (plain) {
    out = run_plain(blocks, x, pass);
  } else {
    variable_list parameters;
    for (auto& block : blocks) {
      const auto own = block->parameters();
      parameters.insert(parameters.end(), own.begin(), own.end());
    }
    const auto streams = Reversible::apply(x, at::TensorList(parameters), Stack{&blocks, pass});
    out = {streams[0], streams[1]};
  }
  return (out.a + out.b) * 0.5;
}

}  // namespace performer::models
