#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "performer/run/choose_checkpoint.h"
#include "performer/run/recipe.h"
#include "performer/run/tensor_file.h"

/// A run that begins with the weights of another, or of a converted model.
namespace performer::run {

/// The model must be the same but for what has no say in the weights: attention, dropout, length,
/// checkpointing, and the head, whose weights begin as drawn where it is another. kUsage naming all
/// that differs; so does another meaning of tokens (`tokens`: the run's own files of them).
void check_initial(const Checkpoint& from, const Recipe& recipe,
                   const std::map<std::string, std::string>& tokens);

struct Taken {
  std::int64_t tensors = 0;           // from the checkpoint
  std::vector<std::string> drawn;     // of the model, which the checkpoint does not have
  std::vector<std::string> left_out;  // of the checkpoint, which the model does not have
};

/// Fills what has the same name and shape. Heads and fitted features may be of one side alone;
/// anything else that is, or a number that is not finite, is an Error which names it.
Taken load_initial(const Checkpoint& from, const NamedTensors& targets);

}  // namespace performer::run
