// Memory shared by processes of one node.
#pragma once

#include <memory>
#include <string>

#include "comm/shared_memory.hpp"

namespace tessera {

/// Creates zeroed shared memory under a new name, with every page reserved, so that no later write
/// can fail. Raises Error{kInternal} with the reason when there is too little room.
std::shared_ptr<SharedMemory> create_posix_memory(std::size_t bytes, std::string& name);
/// Maps what another process created. Raises Error{kInternal} when that fails.
std::shared_ptr<SharedMemory> open_posix_memory(const std::string& name, std::size_t bytes);
/// Removes the name; the memory lives until nobody maps it.
void unlink_posix_memory(const std::string& name) noexcept;

}  // namespace tessera
