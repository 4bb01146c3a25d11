#pragma once

#include <string>
#include <utility>
#include <vector>

#include "performer/pretrained/description.h"
#include "performer/pretrained/tensor_folder.h"

namespace performer::pretrained {

/// Which tensors of a folder go where.
struct Match {
  std::vector<std::pair<const Place*, FileTensor>> places;  // of the description, all of them
  std::vector<std::pair<FileTensor, FileTensor>> twins;     // must hold the same numbers
  std::vector<std::pair<std::string, FileTensor>> kept;     // own name, tensor
};

/// kCorrupt, naming the first, for a tensor that is missing, of another shape or type than the
/// description has, or that no model of its kind has. Nothing is read but headers.
Match match_tensors(const Description& description, const TensorFolder& folder);

}  // namespace performer::pretrained
