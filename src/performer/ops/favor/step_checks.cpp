#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "performer/ops/checks.h"
#include "performer/ops/favor/fields.h"

namespace performer {
namespace {

constexpr auto kWrittenFields = fields_with<kFavorFields, kWrittenInStep>();

// The bytes from a tensor's first element to its last, which a write may reach.
struct Span {
  std::uintptr_t begin = 0, end = 0;

  explicit Span(const Tensor& t) {
    if (t.numel() == 0) return;
    begin = end = reinterpret_cast<std::uintptr_t>(t.const_data_ptr());
    std::int64_t last = 1;
    for (std::int64_t i = 0; i < t.dim(); ++i) last += (t.size(i) - 1) * t.stride(i);
    end += static_cast<std::uintptr_t>(last) * t.element_size();
  }
  bool meets(const Span& other) const { return begin < other.end && other.begin < end; }
};

}  // namespace

void check_favor_step(const FavorArgs& a) {
  check_favor_args(a);
  TORCH_CHECK(a.q.sym_size(2) == 1, a.op, ": q must be one token, [batch, heads, 1, dim], got ",
              a.q.sym_sizes());
  check_defined(a.op, {"state_kv", a.state_kv});
  for_each_field(kWrittenFields, [&](const auto& field) {
    const Tensor& t = a.*field.member;
    TORCH_CHECK(!t.defined() || t.is_contiguous(), a.op, ": ", field.name,
                " is written in place and must be contiguous, got strides ", t.sym_strides());
  });
}

void check_own_memory(const FavorArgs& a) {
  std::vector<NamedTensor> written, read;
  for_each_tensor(kStepFields, [&](const auto& field) {
    auto& list = (field.roles & kWrittenInStep) != 0 ? written : read;
    list.push_back({field.name, a.*field.member});
  });
  const auto check = [&](const NamedTensor& to, const NamedTensor& other) {
    if (!to.tensor.defined() || !other.tensor.defined()) return;
    TORCH_CHECK(!Span(to.tensor).meets(Span(other.tensor)), a.op, ": ", to.name,
                " is written in place and must not share memory with ", other.name);
  };
  for (std::size_t i = 0; i < written.size(); ++i) {
    for (std::size_t j = i + 1; j < written.size(); ++j) check(written[i], written[j]);
    for (const NamedTensor& other : read) check(written[i], other);
  }
}

}  // namespace performer
