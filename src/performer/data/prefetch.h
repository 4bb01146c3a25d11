#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "performer/data/batch.h"

namespace performer::data {

/// Makes batches `first`, first + 1, ... end - 1 on threads of its own and hands them out in order.
class Prefetcher {
 public:
  using Make = std::function<Batch(std::int64_t index)>;
  struct Options {
    std::int64_t first = 0;
    std::int64_t end = std::numeric_limits<std::int64_t>::max();
    std::int64_t depth = 4;  // batches made ahead at most
    int threads = 1;
  };

  /// `make` is called on several threads at once where options.threads > 1.
  Prefetcher(Make make, const Options& options);
  ~Prefetcher();
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  /// The next batch; throws what making it threw. Must not be called past the end: see done().
  Batch next();
  bool done() const { return taken_ >= options_.end; }

 private:
  struct Made {
    Batch batch;
    std::exception_ptr error;
  };
  void work();

  Make make_;
  Options options_;
  std::int64_t taken_;  // the consumer's alone
  std::mutex mutex_;
  std::condition_variable ready_, room_;
  std::map<std::int64_t, Made> made_;
  std::int64_t claimed_;   // next index for a worker
  std::int64_t consumed_;  // next index for the consumer
  bool stop_ = false;
  std::vector<std::thread> workers_;
};

}  // namespace performer::data
