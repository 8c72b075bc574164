#include "train/fault_injection.hpp"

#include <chrono>
#include <csignal>
#include <thread>

#include <unistd.h>

#include "base/check.hpp"

namespace tessera {

void inject_faults(const DebugOptions& options, std::int64_t step, World& world) {
  for (const FaultInjection& fault : options.inject) {
    if (fault.step != step || fault.rank != world.rank()) continue;
    world.logger().warning(
        fmt::format("debug.inject: {} at step {} on rank {}", fault.action, step, world.rank()));
    if (fault.action == "throw") {
      fail(ErrorCode::kInternal, "injected fault at step {} on rank {}", step, world.rank());
    }
    if (fault.action == "exit") _exit(static_cast<int>(ErrorCode::kInternal));
    if (fault.action == "kill") kill(getpid(), SIGKILL);
    if (fault.action == "stall") std::this_thread::sleep_for(std::chrono::hours(24));
  }
}

}  // namespace tessera
