#include "tests/attack/operators/watched.h"

#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstring>
#include <stdexcept>

namespace performer::testing {
namespace {

constexpr std::time_t kHang = 10;     // seconds of processor time
constexpr unsigned kHungSleep = 120;  // seconds at all
constexpr int kWrong = 99;

/// What the child tells its parent whatever becomes of it.
struct Shared {
  std::uint64_t seed;
  char complaint[4096];
};

Shared* share() {
  void* memory =
      ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::runtime_error("mmap failed");
  return static_cast<Shared*>(memory);
}

void set_limit() {
  const itimerval limit{{0, 0}, {kHang, 0}};
  ::setitimer(ITIMER_PROF, &limit, nullptr);
  ::alarm(kHungSleep);
}

[[noreturn]] void run_child(Shared& shared, std::uint64_t end,
                            const std::function<std::string(std::uint64_t)>& attempt) {
  for (; shared.seed < end; ++shared.seed) {
    set_limit();
    const std::string complaint = attempt(shared.seed);
    if (!complaint.empty()) {
      std::snprintf(shared.complaint, sizeof(shared.complaint), "%s", complaint.c_str());
      std::fflush(nullptr);
      ::_exit(kWrong);
    }
  }
  ::_exit(0);
}

std::string how_it_ended(int status, const Shared& shared) {
  if (WIFSIGNALED(status)) {
    const int number = WTERMSIG(status);
    if (number == SIGPROF || number == SIGALRM) return "a hang";
    return std::string("killed: ") + ::strsignal(number);
  }
  if (WEXITSTATUS(status) == kWrong) return shared.complaint;
  return "exit code " + std::to_string(WEXITSTATUS(status)) + ", see the sanitizer's report above";
}

}  // namespace

std::vector<Casualty> casualties_of(std::uint64_t first, std::uint64_t count,
                                    const std::function<std::string(std::uint64_t)>& attempt) {
  Shared* shared = share();
  std::vector<Casualty> casualties;
  for (shared->seed = first; shared->seed < first + count; ++shared->seed) {
    std::fflush(nullptr);
    const pid_t child = ::fork();
    if (child == 0) run_child(*shared, first + count, attempt);
    int status = 0;
    if (child < 0 || ::waitpid(child, &status, 0) != child) throw std::runtime_error("fork failed");
    if (status == 0) break;
    casualties.push_back({shared->seed, how_it_ended(status, *shared)});
  }
  ::munmap(shared, sizeof(Shared));
  return casualties;
}

}  // namespace performer::testing
