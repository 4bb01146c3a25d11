#include "performer/data/prefetch.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

namespace performer::data {

Prefetcher::Prefetcher(Make make, const Options& options)
    : make_(std::move(make)),
      options_(options),
      taken_(options.first),
      claimed_(options.first),
      consumed_(options.first) {
  const int threads = std::max(options.threads, 1);
  options_.depth = std::max<std::int64_t>(options_.depth, 1);
  workers_.reserve(static_cast<std::size_t>(threads));
  for (int t = 0; t < threads; ++t) workers_.emplace_back([this] { work(); });
}

Prefetcher::~Prefetcher() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  room_.notify_all();
  for (auto& worker : workers_) worker.join();
}

void Prefetcher::work() {
  for (;;) {
    std::int64_t index = 0;
    {
      std::unique_lock lock(mutex_);
      room_.wait(lock, [&] {
        return stop_ || claimed_ >= options_.end || claimed_ < consumed_ + options_.depth;
      });
      if (stop_ || claimed_ >= options_.end) return;
      index = claimed_++;
    }
    Made made;
    try {
      made.batch = make_(index);
    } catch (...) {
      made.error = std::current_exception();
    }
    {
      const std::lock_guard lock(mutex_);
      made_.emplace(index, std::move(made));
    }
    ready_.notify_one();
  }
}

Batch Prefetcher::next() {
  TORCH_CHECK(!done(), "prefetch: asked for a batch past the end, ", options_.end);
  Made made;
  {
    std::unique_lock lock(mutex_);
    ready_.wait(lock, [&] { return made_.contains(taken_); });
    made = std::move(made_.extract(taken_).mapped());
    consumed_ = ++taken_;
  }
  room_.notify_all();
  if (made.error) std::rethrow_exception(made.error);
  return std::move(made.batch);
}

}  // namespace performer::data
