// run(): from main()'s arguments to one call of a body per rank.
#pragma once

#include <tessera/export.hpp>
#include <tessera/options.hpp>
#include <tessera/world.hpp>

#include <functional>

namespace tessera {

/// Reads `PROGRAM CONFIG [--set key.path=value]… [--ranks N]`, starts MPI where a launcher did (or
/// N ranks as threads, or one rank), and calls `body` once per rank with the resolved
/// configuration. An exception of any rank ends the whole job: one error line on stderr, and the
/// code of the first cause as the result. Returns the exit code for main().
TESSERA_API int run(int argc, char** argv,
                    const std::function<void(World& world, const Config& config)>& body);

}  // namespace tessera
