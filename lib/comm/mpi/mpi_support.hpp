// Small things that all of the MPI backend uses.
#pragma once

#include <tessera/error.hpp>

#include <memory>
#include <string>

#include "comm/mpi/mpi_header.hpp"
#include "comm/shared_memory.hpp"

namespace tessera {

/// Raises LostPeerError naming `call` and MPI's reason unless `result` is MPI_SUCCESS.
void check_mpi(int result, const char* call);

/// A duplicate of `parent` that returns errors instead of ending the process.
MPI_Comm duplicate(MPI_Comm parent);

/// Memory that all ranks of `comm` see, or null on all of them, with the reason on rank 0, when
/// they are on several nodes or one of them could not get it. Collective.
std::shared_ptr<SharedMemory> make_node_memory(MPI_Comm comm, std::size_t bytes,
                                               std::string& reason);

}  // namespace tessera
