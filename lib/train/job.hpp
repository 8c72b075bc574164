// Starting a job from a configuration file, and ending it with one exit code.
#pragma once

#include <tessera/options.hpp>
#include <tessera/train.hpp>
#include <tessera/world.hpp>

#include <functional>

namespace tessera {

/// What one rank runs; its result is the exit code of a job that ended in order.
using JobBody = std::function<int(World&, const Config&)>;

/// Loads the configuration, makes the ranks and runs `body` on each. Prints errors itself, each
/// once per job, and returns the exit code.
int run_job(const RunArguments& arguments, const JobBody& body);

}  // namespace tessera
