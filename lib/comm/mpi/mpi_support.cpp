#include "comm/mpi/mpi_support.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include <fmt/format.h>

#include "comm/job.hpp"
#include "comm/posix_memory.hpp"

namespace tessera {

void check_mpi(int result, const char* call) {
  if (result == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(result, text.data(), &length);
  throw LostPeerError(fmt::format("{}: {}", call, text.data()));
}

MPI_Comm duplicate(MPI_Comm parent) {
  MPI_Comm comm = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(parent, &comm), "MPI_Comm_dup");
  check_mpi(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  return comm;
}

std::shared_ptr<SharedMemory> make_node_memory(MPI_Comm comm, std::size_t bytes,
                                               std::string& reason) {
  int rank = 0;
  check_mpi(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
  // Ranks of other nodes, and of containers with their own /dev/shm, fail to open what rank 0 made:
  // trying is the one test that does not depend on what MPI calls a node.
  struct Offer {
    int made = 0;
    std::array<char, 64> name{};
  };
  Offer offer;
  std::shared_ptr<SharedMemory> memory;
  std::string name;
  if (rank == 0) {
    try {
      memory = create_posix_memory(bytes, name);
      offer.made = 1;
      std::memcpy(offer.name.data(), name.data(), std::min(name.size(), offer.name.size() - 1));
    } catch (const Error& error) {
      reason = error.message();
    }
  }
  check_mpi(MPI_Bcast(&offer, sizeof(offer), MPI_BYTE, 0, comm), "MPI_Bcast");
  if (rank != 0 && offer.made == 1) {
    try {
      memory = open_posix_memory(offer.name.data(), bytes);
    } catch (const Error& error) {
      reason = error.message();
    }
  }
  int mine = memory != nullptr ? 1 : 0;
  int all = 0;
  const int result = MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, comm);
  if (rank == 0 && offer.made == 1) unlink_posix_memory(name);
  check_mpi(result, "MPI_Allreduce");
  if (all == 1) return memory;
  if (reason.empty()) reason = "not all ranks share memory";
  return nullptr;
}

}  // namespace tessera
