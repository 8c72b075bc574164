// The training loop as the tessera command runs it.
#pragma once

#include <tessera/options.hpp>
#include <tessera/world.hpp>

#include <string>

namespace tessera {

/// Trains on one rank of `world` until trainer.max_steps, or until asked to stop. Collective.
/// `resume`: "auto", "none" or a checkpoint's path. Returns the exit code of a run that ended in
/// order: 0, 130 or 143. Raises Error otherwise.
int train_on_rank(World& world, const Config& config, const std::string& resume);

/// Evaluates `checkpoint` and prints one JSON line on stdout at rank 0. Collective.
int evaluate_on_rank(World& world, const Config& config, const std::string& checkpoint);

}  // namespace tessera
