// Faults on purpose (debug.inject), for tests and drills.
#pragma once

#include <tessera/options.hpp>
#include <tessera/world.hpp>

#include <cstdint>

namespace tessera {

/// Carries out what is due on this rank at the start of `step` (1 = the first): throws an Error,
/// exits the process, kills it, or stalls for good.
void inject_faults(const DebugOptions& options, std::int64_t step, World& world);

}  // namespace tessera
