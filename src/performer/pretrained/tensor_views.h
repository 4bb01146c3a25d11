#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <unordered_map>

#include "performer/models/transformer.h"
#include "performer/pretrained/description.h"
#include "performer/pretrained/tensor_folder.h"

namespace performer::pretrained {

/// Parameters and buffers of a model by name, without gradients.
using Parameters = std::unordered_map<std::string, at::Tensor>;
Parameters parameters_of(const models::Transformer& model);

/// Throws where the places do not cover each parameter of the model exactly once: a description
/// that forgets one is a mistake of ours.
void check_covered(const Description& description, const Parameters& parameters);

/// The part of a parameter that the tensor of a place is: its elements in the order of the file,
/// dimensions possibly split further. Writing to it writes to the parameter.
at::Tensor view_of(const Parameters& parameters, const Place& place, std::int64_t head_dim);

/// Fills `view` from the file, a few MiB at a time; kCorrupt, naming file and tensor, where a number
/// is not finite.
void read_into(const FileTensor& tensor, const at::Tensor& view);

/// Whether the file holds exactly the numbers of `view`, bit by bit once both are float32.
bool holds(const FileTensor& tensor, const at::Tensor& view);

/// kCorrupt unless both hold the same numbers.
void check_twins(const FileTensor& a, const FileTensor& b);

}  // namespace performer::pretrained
