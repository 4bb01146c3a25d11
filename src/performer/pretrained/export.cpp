#include "performer/pretrained/export.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "performer/core/error.h"
#include "performer/core/file.h"
#include "performer/core/safetensors.h"
#include "performer/infer/load_model.h"
#include "performer/pretrained/describe.h"
#include "performer/pretrained/new_folder.h"
#include "performer/pretrained/source.h"
#include "performer/pretrained/tensor_views.h"
#include "performer/run/choose_checkpoint.h"
#include "performer/run/tensor_file.h"

namespace performer::pretrained {
namespace {

namespace fs = std::filesystem;

// Names as transformers writes them, and tensors in the order of the file's elements.
struct Outgoing {
  std::vector<safetensors::TensorSpec> specs;
  std::vector<at::Tensor> values;

  void add(std::string name, std::vector<std::int64_t> shape, at::Tensor value) {
    specs.push_back({std::move(name), safetensors::Dtype::kF32, std::move(shape)});
    values.push_back(std::move(value));
  }
};

// A later training may have changed the sizes, which then are not those of the old config.json.
void check_shape(const Place& place, const at::Tensor& view, const std::string& folder) {
  if (c10::multiply_integers(place.shape) == view.numel()) return;
  fail(ExitCode::kBadInput, "{}: {} has other sizes than in the folder it was converted from",
       folder, place.parameter);
}

Outgoing tensors_of(const Description& d, const infer::LoadedModel& loaded) {
  Outgoing out;
  const auto parameters = parameters_of(loaded.model);
  check_covered(d, parameters);
  for (const auto& place : d.places) {
    auto view = view_of(parameters, place, d.model.head_dim());
    check_shape(place, view, loaded.folder);
    out.add(d.file_name(place.name), place.shape, std::move(view));
  }
  const fs::path kept = fs::path(loaded.folder) / run::kKeptFile;
  if (!is_there(kept)) return out;
  for (const auto& [name, tensor] : run::load_tensors(kept)) {
    out.add(d.file_name(name), tensor.sizes().vec(), tensor);
  }
  return out;
}

void write_weights(const fs::path& file, const Outgoing& out) {
  FileWriter writer(file);
  at::Tensor host;  // keeps the bytes of the tensor being written
  safetensors::write(writer, out.specs, {{"format", "pt"}}, [&](std::size_t i) {
    host = out.values[i].contiguous();
    return std::span(static_cast<const std::byte*>(host.const_data_ptr()), host.nbytes());
  });
  writer.finish();
}

std::string exported_config(const HfConfig& config) {
  auto json = config.json();
  for (const char* key : {"dtype", "torch_dtype"}) {
    if (json.contains(key)) json[key] = "float32";
  }
  return json.dump(2) + "\n";
}

bool is_approximate(const models::ModelConfig& model) {
  for (std::int64_t layer = 0; layer < model.layers; ++layer) {
    if (model.kind_of(layer) != "exact") return true;
  }
  return false;
}

void write_small(const fs::path& file, const std::string& bytes) {
  FileWriter writer(file);
  writer.write(bytes);
  writer.finish();
}

}  // namespace

Exported export_folder(const fs::path& checkpoint, const fs::path& to) {
  const auto chosen = run::choose_checkpoint(checkpoint, {});
  const Source source = read_source(chosen.checkpoint);
  const auto loaded = infer::load_model(checkpoint.string(), {});
  const HfConfig config(source.config(), loaded.folder + "/source-config.json");
  const bool stored = loaded.recipe.model.rotary_frequencies == "stored";
  const Description d = describe(config, {.frequencies = stored});
  NewFolder out(to);
  const Outgoing tensors = tensors_of(d, loaded);
  write_weights(out.path() / "model.safetensors", tensors);
  for (const auto& [name, bytes] : source.small) {
    write_small(out.path() / name, name == "config.json" ? exported_config(config) : bytes);
  }
  out.commit();
  return {d.architecture, loaded.folder, std::ssize(tensors.specs),
          is_approximate(loaded.recipe.model)};
}

}  // namespace performer::pretrained
