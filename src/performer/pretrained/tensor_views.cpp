#include "performer/pretrained/tensor_views.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "performer/core/error.h"
#include "performer/core/safe_text.h"

namespace performer::pretrained {
namespace {

constexpr std::int64_t kSliceBytes = 4 << 20;

at::ScalarType type_of(safetensors::Dtype dtype) {
  return dtype == safetensors::Dtype::kF16    ? at::kHalf
         : dtype == safetensors::Dtype::kBF16 ? at::kBFloat16
                                              : at::kFloat;
}

// The tensor's numbers as float32, slice by slice: take(first row, [rows, the rest of `sizes`]), by
// the first of `sizes`, which has the tensor's elements in its order.
void for_slices(const FileTensor& tensor, at::IntArrayRef sizes,
                const std::function<void(std::int64_t, const at::Tensor&)>& take) {
  const auto& entry = *tensor.entry;
  const std::int64_t rows = sizes.front();
  if (rows == 0) return;
  const std::int64_t row_bytes = (entry.end - entry.begin) / rows;
  const std::int64_t most =
      std::clamp<std::int64_t>(kSliceBytes / std::max<std::int64_t>(row_bytes, 1), 1, rows);
  auto shape = sizes.vec();
  for (std::int64_t first = 0; first < rows; first += most) {
    shape.front() = std::min(most, rows - first);
    at::Tensor slice = at::empty(shape, at::TensorOptions(type_of(entry.dtype)));
    tensor.reader->read_part(entry, first * row_bytes,
                             {static_cast<std::byte*>(slice.mutable_data_ptr()), slice.nbytes()});
    take(first, slice.to(at::kFloat));
  }
}

at::Tensor bits(const at::Tensor& t) { return t.contiguous().view(at::kInt); }

}  // namespace

Parameters parameters_of(const models::Transformer& model) {
  Parameters all;
  for (const auto& item : model->named_parameters()) all.emplace(item.key(), item.value().detach());
  for (const auto& item : model->named_buffers()) {
    const bool fitted =
        item.key().find(".core.features.") != std::string::npos;  // no file has them
    if (!fitted) all.emplace(item.key(), item.value());
  }
  return all;
}

void check_covered(const Description& description, const Parameters& parameters) {
  std::unordered_map<std::string, std::int64_t> covered;
  for (const auto& place : description.places) {
    covered[place.parameter] += c10::multiply_integers(place.shape);
  }
  for (const auto& [name, tensor] : parameters) {
    TORCH_CHECK(covered[name] == tensor.numel(), description.architecture, ": ", covered[name],
                " of the ", tensor.numel(), " numbers of ", name, " have a place in its files");
  }
}

at::Tensor view_of(const Parameters& parameters, const Place& place, std::int64_t head_dim) {
  const auto found = parameters.find(place.parameter);
  TORCH_CHECK(found != parameters.end(), place.name, ": the model has no ", place.parameter);
  const at::Tensor& parameter = found->second;
  if (place.layout == Layout::kTransposed) return parameter.t();
  at::Tensor rows = parameter.narrow(0, place.first_row, place.shape.front());
  if (place.layout == Layout::kRows) return rows;
  return rows.unflatten(0, {-1, head_dim / 2, 2}).transpose(1, 2);  // [heads, 2, D/2, ...]
}

void read_into(const FileTensor& tensor, const at::Tensor& view) {
  const at::NoGradGuard no_grad;
  for_slices(tensor, view.sizes(), [&](std::int64_t first, const at::Tensor& slice) {
    if (!at::isfinite(slice).all().item<bool>()) {
      fail(ExitCode::kCorrupt, "{}: tensor {} holds NaN or infinity", tensor.file,
           shown(tensor.entry->name));
    }
    view.narrow(0, first, slice.size(0)).copy_(slice);
  });
}

bool holds(const FileTensor& tensor, const at::Tensor& view) {
  bool same = true;
  for_slices(tensor, view.sizes(), [&](std::int64_t first, const at::Tensor& slice) {
    same = same && bits(slice).equal(bits(view.narrow(0, first, slice.size(0))));
  });
  return same;
}

void check_twins(const FileTensor& a, const FileTensor& b) {
  const auto& sizes = a.entry->shape;
  if (sizes.empty()) return;
  for_slices(a, sizes, [&](std::int64_t first, const at::Tensor& mine) {
    const std::int64_t rows = mine.size(0);
    const auto& entry = *b.entry;
    const std::int64_t row_bytes = (entry.end - entry.begin) / sizes.front();
    at::Tensor other = at::empty(mine.sizes(), at::TensorOptions(type_of(entry.dtype)));
    b.reader->read_part(entry, first * row_bytes,
                        {static_cast<std::byte*>(other.mutable_data_ptr()), other.nbytes()});
    if (bits(mine).equal(bits(other.to(at::kFloat)))) return;
    fail(ExitCode::kCorrupt,
         "{}: tensors {} and {} differ in rows {} to {}, though by config.json they are one",
         b.file, shown(a.entry->name), shown(entry.name), first, first + rows - 1);
  });
}

}  // namespace performer::pretrained
