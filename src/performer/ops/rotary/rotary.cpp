#include "performer/ops/rotary/rotary.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <vector>

namespace performer {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

class Rotate : public torch::autograd::Function<Rotate> {
 public:
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& turns) {
    ctx->save_for_backward({turns});
    return turn_pairs(x, turns);
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    return {turn_pairs(grads[0], ctx->get_saved_variables()[0].conj()), Tensor()};
  }
};

at::ScalarType complex_type(const at::TensorOptions& like) {
  return like.dtype() == at::kDouble ? at::kComplexDouble : at::kComplexFloat;
}

}  // namespace

Tensor turn_pairs(const Tensor& x, const Tensor& turns) {
  const auto real = turns.scalar_type() == at::kComplexDouble ? at::kDouble : at::kFloat;
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(x.dim()), 1);
  sizes[1] = turns.size(0);
  sizes.back() = turns.size(1);
  Tensor dense = x.to(real).contiguous();
  if (dense.storage_offset() % 2 != 0) dense = dense.clone();  // complex numbers begin at even ones
  const Tensor pairs = dense.unflatten(-1, {turns.size(1), 2});
  const Tensor product = at::view_as_complex(pairs).mul(turns.view(sizes));
  return at::view_as_real(product).flatten(-2).to(x.scalar_type());
}

Tensor rotate(const Tensor& x, const Tensor& turns) { return Rotate::apply(x, turns); }

// cos + i sin of positions [L] float64: [L, D/2] complex128.
Tensor RotaryTables::turns_of(const Tensor& positions) const {
  const Tensor rates =
      frequencies_.defined()
          ? frequencies_.to(positions.options())
          : at::pow(base_, at::arange(0, head_dim_, 2, positions.options()).div(-head_dim_));
  const Tensor angle = at::outer(positions, rates);
  return at::polar(at::ones_like(angle), angle);
}

Tensor RotaryTables::turns(std::int64_t first, std::int64_t length, const at::TensorOptions& like) {
  const auto dtype = complex_type(like);
  const std::int64_t known = table_.defined() ? table_.size(0) : 0;
  if (first < begin_ || begin_ + known < first + length || table_.scalar_type() != dtype ||
      table_.device() != like.device()) {
    // Streams ask for one more each time, without end: the table moves along with them.
    begin_ = first;
    const std::int64_t rows = first > 0 ? std::max(length, kStreamRows) : length;
    const Tensor positions = at::arange(first, first + rows, at::kDouble);
    table_ = turns_of(positions).to(dtype).to(like.device());
  }
  return table_.narrow(0, first - begin_, length);
}

Tensor RotaryTables::turns(const Tensor& index, const at::TensorOptions& like) const {
  return turns_of(index.to(at::kDouble)).to(complex_type(like));
}

}  // namespace performer
