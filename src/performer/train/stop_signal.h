#pragma once

namespace performer::train {

/// While one lives, SIGTERM and SIGINT ask for a stop instead of ending the program; a second one
/// ends it at once.
class StopSignal {
 public:
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  /// The signal's number, 0 while there was none.
  int requested() const;
};

}  // namespace performer::train
