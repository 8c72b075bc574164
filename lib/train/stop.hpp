// Requests to stop a run: signals, and the file run.dir/stop.
#pragma once

#include <tessera/world.hpp>

#include <string>

namespace tessera {

/// Why a run stops early; the larger one wins when ranks differ.
enum class StopReason { kNone = 0, kFile = 1, kInterrupt = 2, kTerminate = 3 };

/// The exit code for a reason: 0 for the stop file, 130, 143.
int exit_code(StopReason reason);

/// Catches SIGINT, SIGTERM and SIGUSR1 (which counts as SIGTERM: mpirun forwards it and leaves
/// ranks their time) while it lives. One process has at most one at a time that catches; ranks that
/// are threads share it. A third signal ends the process at once.
class SignalCatcher {
 public:
  SignalCatcher();
  ~SignalCatcher();
  SignalCatcher(const SignalCatcher&) = delete;
  SignalCatcher& operator=(const SignalCatcher&) = delete;
};

/// What this rank has been asked for so far.
StopReason requested_stop(const std::string& run_dir, bool look_for_file);
/// The ranks' agreement on it: collective.
StopReason agree_on_stop(World& world, StopReason own);

}  // namespace tessera
