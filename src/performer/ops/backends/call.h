#pragma once

#include <optional>

#include "performer/ops/backends/choose.h"
#include "performer/ops/backends/pointers.h"
#include "performer/ops/favor/results.h"

namespace performer::backends {

/// A call on its way to a path. The pointers that kernels take are made once, where a fused path
/// may serve. Refers to `args`, which are checked and stay as they are.
class Call {
 public:
  explicit Call(const FavorArgs& args) : args_(args) {}

  const FavorArgs& args() const { return args_; }
  const KernelCall& pointers() const;

  /// What computes the forward pass, or the step.
  Path forward_path() const;
  /// What computes the gradients. The composed operator also where a parameter's gradient is
  /// needed, where query heads of one key head have key parameters of their own, and on CUDA
  /// without the forward pass's out.
  Path backward_path(const FavorSaved& saved) const;

 private:
  Path choose_for(Pass pass, Switch chosen) const;
  bool serves(Path path, Pass pass, Switch chosen) const;

  const FavorArgs& args_;
  mutable std::optional<KernelCall> pointers_;
};

}  // namespace performer::backends
