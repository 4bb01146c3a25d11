#include "performer/ops/idle_threads.h"

#include <ATen/Parallel.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <semaphore>
#include <thread>

// The runtime is torch's own, and its header need not be here.
extern "C" {
int omp_get_num_procs();
void omp_set_dynamic(int);
void kmp_set_blocktime(int) __attribute__((weak));  // LLVM's and Intel's runtimes
}

namespace performer {
namespace {

bool chosen_by_user() {
  return std::getenv("OMP_WAIT_POLICY") != nullptr || std::getenv("GOMP_SPINCOUNT") != nullptr;
}

// A team so large that with torch's `threads` there are more than processors. Its members wait for
// work that never comes.
void keep_a_team(int threads, std::binary_semaphore& ready) {
  pthread_setname_np(pthread_self(), "performer-idle");
  omp_set_dynamic(0);
  std::atomic<int> members = 0;
  // libgomp counts torch's team in full and this one without the thread that began it.
  const int team = std::max(omp_get_num_procs() - threads, 0) + 2;
#pragma omp parallel num_threads(team)
  members.fetch_add(1, std::memory_order_relaxed);
  ready.release();
  while (true) ::pause();
}

void start_sleepers() {
  // These threads take no signals: handlers belong to the program's own.
  sigset_t all, before;
  sigfillset(&all);
  if (pthread_sigmask(SIG_SETMASK, &all, &before) != 0) return;
  std::binary_semaphore ready(0);
  std::thread([&ready, threads = at::get_num_threads()] { keep_a_team(threads, ready); }).detach();
  ready.acquire();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace

void let_idle_threads_sleep() {
  static std::atomic<bool> decided = false;
  if (decided.load(std::memory_order_relaxed) || at::get_num_threads() < 2) return;
  if (decided.exchange(true) || chosen_by_user() || kmp_set_blocktime != nullptr) return;
  start_sleepers();
}

}  // namespace performer
