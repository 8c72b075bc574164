// Outcomes that all ranks share. What one rank sees of its files must never decide on its own
// whether it enters the next collective: it tells the others first, and all of them go on or all
// raise the same error.
#pragma once

#include <tessera/comm.hpp>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

/// Runs `body` on every rank and returns every rank's result, in rank order. When it raised
/// anywhere, every rank raises the error of the first rank where it did (with "rank N" in the
/// context unless N is 0). `body` must not use `comm`. Collective.
std::vector<std::string> gather_outcomes(Communicator& comm, std::string_view label,
                                         const std::function<std::string()>& body);

/// The same without results.
void agree(Communicator& comm, std::string_view label, const std::function<void()>& body);

/// Runs `body` on rank 0 alone; all ranks return its result or raise its error. Collective.
std::string decide_on_root(Communicator& comm, std::string_view label,
                           const std::function<std::string()>& body);

}  // namespace tessera
