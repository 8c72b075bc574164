// Decisions that rank 0 makes for all: what one rank sees of a file system never leads ranks apart.
#pragma once

#include <functional>

#include <tessera/world.hpp>

namespace tessera {

/// Runs `action` on rank 0; an Error it raises is raised on every rank. Collective.
void run_on_root(World& world, const std::function<void()>& action);

}  // namespace tessera
