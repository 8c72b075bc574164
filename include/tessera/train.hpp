// Training and evaluation as the tessera command runs them.
#pragma once

#include <tessera/export.hpp>

#include <string>
#include <vector>

namespace tessera {

/// What a command line says about a run.
struct RunArguments {
  std::string config_path;
  std::vector<std::string> overrides;  ///< "key.path=value", in order (--set)
  /// Where to start: "auto" (the newest valid checkpoint of the run, if any), "none" (from
  /// scratch), or the path of a checkpoint.
  std::string resume = "auto";
  /// Ranks as threads of this process; 0 = those of the launcher, one without a launcher.
  int ranks = 0;
  int argc = 0;  ///< of main(), for MPI
  char** argv = nullptr;
};

/// Trains until trainer.max_steps. Returns the exit code of the process (ErrorCode) and has printed
/// its own error: one line, once per job.
TESSERA_API int train(const RunArguments& arguments);

/// Prints the evaluation loss of `checkpoint` as one JSON line on stdout (rank 0). Returns as
/// train().
TESSERA_API int evaluate(const RunArguments& arguments, const std::string& checkpoint);

}  // namespace tessera
