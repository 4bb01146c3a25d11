#pragma once

#include <memory>
#include <string>

namespace performer::train {

/// While one lives, counts calls and own host time (without that of inner calls) of every operator,
/// on all threads. On a GPU this is the time of the launches.
class Profile {
 public:
  Profile();
  ~Profile();
  Profile(const Profile&) = delete;
  Profile& operator=(const Profile&) = delete;

  /// The costliest operators: share of time, seconds, calls, name.
  std::string table(int rows = 25) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace performer::train
