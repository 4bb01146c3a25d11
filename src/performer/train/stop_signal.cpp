#include "performer/train/stop_signal.h"

#include <csignal>

namespace performer::train {
namespace {

volatile std::sig_atomic_t stop_signal = 0;  // written by the handler alone

extern "C" void performer_request_stop(int signal) {
  if (stop_signal != 0) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
  stop_signal = signal;
}

}  // namespace

StopSignal::StopSignal() {
  stop_signal = 0;
  std::signal(SIGTERM, performer_request_stop);
  std::signal(SIGINT, performer_request_stop);
}

StopSignal::~StopSignal() {
  std::signal(SIGTERM, SIG_DFL);
  std::signal(SIGINT, SIG_DFL);
}

int StopSignal::requested() const { return stop_signal; }

}  // namespace performer::train
