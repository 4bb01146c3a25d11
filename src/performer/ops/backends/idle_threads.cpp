#include "performer/ops/backends/idle_threads.h"

#include <ATen/Parallel.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <mutex>
#include <semaphore>
#include <system_error>
#include <thread>
#include <vector>

// The runtime is torch's own, and its header need not be here.
extern "C" {
int omp_get_num_procs();
void omp_set_dynamic(int);
void kmp_set_blocktime(int) __attribute__((weak));  // LLVM's and Intel's runtimes
}

namespace performer {
namespace {

// On larger machines a process that leaves processors idle is not short of them.
constexpr int kMostSleepers = 3;

bool chosen_by_user() {
  return std::getenv("OMP_WAIT_POLICY") != nullptr || std::getenv("GOMP_SPINCOUNT") != nullptr;
}

/// Threads begun here take no signals: handlers belong to the program's own.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    blocked_ = pthread_sigmask(SIG_SETMASK, &all, &before_) == 0;
  }
  ~SignalsBlocked() {
    if (blocked_) pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
  bool blocked_;
};

pid_t thread_id() { return static_cast<pid_t>(::syscall(SYS_gettid)); }

// libgomp ends the process where it cannot have its threads, so they are tried beforehand. A limit
// counts a thread until the kernel has let go of it, a little later than join returns.
bool has_room_for(int threads) {
  std::array<std::atomic<pid_t>, kMostSleepers + 1> ids{};
  std::counting_semaphore<> end(0);
  std::vector<std::thread> tried;
  bool room = true;
  try {
    tried.reserve(static_cast<std::size_t>(threads));
    for (int i = 0; i < threads; ++i) {
      tried.emplace_back([&end, &id = ids.at(static_cast<std::size_t>(i))] {
        id = thread_id();
        end.acquire();
      });
    }
  } catch (const std::system_error&) {
    room = false;
  }
  end.release(std::ssize(tried));
  for (std::size_t i = 0; i < tried.size(); ++i) {
    tried[i].join();
    while (::syscall(SYS_tgkill, ::getpid(), ids.at(i).load(), 0) == 0) std::this_thread::yield();
  }
  return room;
}

// This thread and `sleepers` more, which wait for work that never comes: what libgomp counts.
void keep_a_team(int sleepers, std::binary_semaphore& ready) {
  pthread_setname_np(pthread_self(), "performer-idle");
  omp_set_dynamic(0);
  std::atomic<int> members = 0;
#pragma omp parallel num_threads(sleepers + 1)
  members.fetch_add(1, std::memory_order_relaxed);
  ready.release();
  while (true) ::pause();
}

bool start_sleepers(int sleepers) {
  const SignalsBlocked blocked;
  if (!has_room_for(sleepers + 1)) return false;
  std::binary_semaphore ready(0);
  try {
    std::thread([&ready, sleepers] { keep_a_team(sleepers, ready); }).detach();
  } catch (const std::system_error&) {
    return false;
  }
  ready.acquire();
  return true;
}

// So many that with a team of `threads` there are more than processors.
int sleepers_beside(int threads) { return std::max(omp_get_num_procs() - threads, 0) + 1; }

}  // namespace

void let_idle_threads_sleep() {
  static std::atomic<int> decided = INT_MAX;  // for teams of so many threads and more
  const int threads = at::get_num_threads();
  if (threads < 2 || threads >= decided.load(std::memory_order_relaxed)) return;
  static std::mutex one_at_a_time;
  const std::unique_lock lock(one_at_a_time, std::try_to_lock);
  if (!lock || threads >= decided.exchange(threads)) return;
  static int started = 0;
  const int sleepers = sleepers_beside(threads);
  if (chosen_by_user() || kmp_set_blocktime != nullptr) return;
  if (sleepers <= started || sleepers > kMostSleepers) return;
  if (start_sleepers(sleepers - started)) started = sleepers;
}

}  // namespace performer
