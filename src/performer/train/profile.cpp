#include "performer/train/profile.h"

#include <ATen/record_function.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace performer::train {
namespace {

using Clock = std::chrono::steady_clock;

struct Cost {
  double seconds = 0;
  std::int64_t calls = 0;
};

// Callbacks are plain functions without room for `this`: one profile at a time, on every thread.
std::mutex costs_mutex;
std::unordered_map<std::string, Cost> costs;

struct Call : at::ObserverContext {
  Clock::time_point begin = Clock::now();
  double inner = 0;
};
thread_local std::vector<Call*> open_calls;

std::unique_ptr<at::ObserverContext> enter(const at::RecordFunction&) {
  auto call = std::make_unique<Call>();
  open_calls.push_back(call.get());
  return call;
}

void leave(const at::RecordFunction& function, at::ObserverContext* context) {
  const auto* call = static_cast<Call*>(context);
  if (open_calls.empty() || open_calls.back() != call) return;  // began before the profile
  open_calls.pop_back();
  const double seconds = std::chrono::duration<double>(Clock::now() - call->begin).count();
  if (!open_calls.empty()) open_calls.back()->inner += seconds;
  const std::lock_guard lock(costs_mutex);
  auto& cost = costs[function.name()];
  cost.seconds += seconds - call->inner;
  ++cost.calls;
}

}  // namespace

struct Profile::Impl {
  at::CallbackHandle handle;
};

Profile::Profile() : impl_(std::make_unique<Impl>()) {
  costs.clear();
  impl_->handle = at::addGlobalCallback(
      at::RecordFunctionCallback(enter, leave)
          .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
}

Profile::~Profile() { at::removeCallback(impl_->handle); }

std::string Profile::table(int rows) const {
  const std::lock_guard lock(costs_mutex);
  std::vector<std::pair<std::string, Cost>> sorted(costs.begin(), costs.end());
  std::sort(sorted.begin(), sorted.end(),
            [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
  double whole = 0;
  for (const auto& item : sorted) whole += item.second.seconds;
  auto text = fmt::format("{:>7} {:>9} {:>9}  operator\n", "share", "seconds", "calls");
  for (int i = 0; i < rows && i < static_cast<int>(sorted.size()); ++i) {
    const auto& [name, cost] = sorted[static_cast<std::size_t>(i)];
    text += fmt::format("{:>5.1f} % {:>9.3f} {:>9}  {}\n", 100 * cost.seconds / whole, cost.seconds,
                        cost.calls, name);
  }
  return text;
}

}  // namespace performer::train
