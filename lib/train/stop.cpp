#include "train/stop.hpp"

#include <algorithm>
#include <atomic>
#include <csignal>

#include <unistd.h>

#include "base/env.hpp"

namespace tessera {

namespace {

// A signal handler can only reach process-wide variables.
std::atomic<int> caught_reason{0};
std::atomic<int> caught_count{0};
std::atomic<int> catchers{0};

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGUSR1};

void on_signal(int number) {
  const int reason =
      static_cast<int>(number == SIGINT ? StopReason::kInterrupt : StopReason::kTerminate);
  if (caught_reason.load() < reason) caught_reason.store(reason);
  if (++caught_count > 2) _exit(128 + number);
}

void set_handlers(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (const int number : kSignals) sigaction(number, &action, nullptr);
}

}  // namespace

int exit_code(StopReason reason) {
  switch (reason) {
    case StopReason::kInterrupt: return 130;
    case StopReason::kTerminate: return 143;
    default: return 0;
  }
}

SignalCatcher::SignalCatcher() {
  if (catchers++ > 0) return;
  caught_reason = 0;
  caught_count = 0;
  set_handlers(on_signal);
}

SignalCatcher::~SignalCatcher() {
  if (--catchers == 0) set_handlers(SIG_DFL);
}

StopReason requested_stop(const std::string& run_dir, bool look_for_file) {
  const auto signal = static_cast<StopReason>(caught_reason.load());
  if (signal != StopReason::kNone || !look_for_file) return signal;
  return Env::posix().exists(join_path(run_dir, "stop")) ? StopReason::kFile : StopReason::kNone;
}

StopReason agree_on_stop(World& world, StopReason own) {
  std::int64_t value = static_cast<std::int64_t>(own);
  world.comm().all_reduce_values(std::span(&value, 1), ReduceOp::kMax, "stop requests");
  return static_cast<StopReason>(value);
}

}  // namespace tessera
