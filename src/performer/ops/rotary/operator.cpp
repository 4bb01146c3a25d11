#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <cstdint>

#include "performer/ops/checks.h"
#include "performer/ops/rotary/rotary.h"

// Rotary positions as one operator, which torch.compile does not look into.
namespace performer {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Positions are exact in float64 below.
constexpr std::int64_t kEndOfPositions = std::int64_t{1} << 53;

void check_position(bool inside, const Tensor& x, const c10::SymInt& first) {
  TORCH_CHECK(inside, "rotary: position must be at least 0 and end below 2^53, got ", first,
              " for ", x.sym_size(1), " tokens");
}

void check_rotary(const Tensor& x, const c10::SymInt& first) {
  TORCH_CHECK(x.defined(), "rotary: x must be a tensor, got an undefined one");
  check_dense("rotary", "x", x);
  TORCH_CHECK(x.dim() >= 3, "rotary: x must be [batch, length, ..., dim], got ", x.sym_sizes());
  TORCH_CHECK(at::isFloatingType(x.scalar_type()), "rotary: x must be floating, got ",
              x.scalar_type());
  TORCH_CHECK(x.sym_size(-1) % 2 == 0, "rotary: x must have an even last dimension, got ",
              x.sym_sizes());
  // Not `first` with the length: compared with a symbolic length it would bound an exported one.
  check_position(first >= 0 && first < kEndOfPositions, x, first);
}

Tensor call_rotary(const Tensor& x, const c10::SymInt& first, bool back) {
  static const auto handle = c10::Dispatcher::singleton()
                                 .findSchemaOrThrow("performer::rotary", "")
                                 .typed<Tensor(const Tensor&, c10::SymInt, bool)>();
  return handle.call(x, first, back);
}

Tensor rotary(const Tensor& x, c10::SymInt first, bool back) {
  check_rotary(x, first);
  const std::int64_t start = first.expect_int();
  check_position(start < kEndOfPositions - x.size(1), x, first);
  const auto options = x.options().dtype(at::kLong);
  const Tensor index = at::arange(start, start + x.size(1), options);
  const Tensor turns = RotaryTables(x.size(-1)).turns(index, x.options());
  // Not the lazy conj(), whose mark is lost where compiled code runs this kernel.
  return turn_pairs(x, back ? turns.conj_physical() : turns);
}

Tensor rotary_meta(const Tensor& x, const c10::SymInt& first, bool /*back*/) {
  check_rotary(x, first);
  return at::empty_symint(x.sym_sizes(), x.options());
}

class Rotary : public torch::autograd::Function<Rotary> {
 public:
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const c10::SymInt& first,
                        bool back) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    ctx->saved_data["first"] = first;
    ctx->saved_data["back"] = back;
    return call_rotary(x, first, back);
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto first = ctx->saved_data["first"].toSymInt();
    return {call_rotary(grads[0], first, !ctx->saved_data["back"].toBool()), Tensor(), Tensor()};
  }
};

}  // namespace

TORCH_LIBRARY_FRAGMENT(performer, m) {
  m.def("rotary(Tensor x, SymInt first=0, bool back=False) -> Tensor");
}
TORCH_LIBRARY_IMPL(performer, CPU, m) { m.impl("rotary", &rotary); }
TORCH_LIBRARY_IMPL(performer, CUDA, m) { m.impl("rotary", &rotary); }
TORCH_LIBRARY_IMPL(performer, Meta, m) {
  m.impl("rotary",
         [](const Tensor& x, c10::SymInt first, bool back) { return rotary_meta(x, first, back); });
}
TORCH_LIBRARY_IMPL(performer, Autograd, m) {
  m.impl("rotary", [](const Tensor& x, c10::SymInt first, bool back) {
    check_rotary(x, first);  // before autograd asks x for its device
    return Rotary::apply(x, first, back);
  });
}

}  // namespace performer
