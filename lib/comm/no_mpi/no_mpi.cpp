// The MPI backend of a build without MPI.
#include "base/check.hpp"
#include "comm/launch.hpp"

namespace tessera {

bool mpi_built_in() { return false; }

std::unique_ptr<World> make_mpi_world(int*, char***, const WorldOptions&) {
  fail(ErrorCode::kUsage, "Unavailable: this build of Tessera has no MPI (TESSERA_WITH_MPI=ON)");
}

std::unique_ptr<World> World::attach_mpi(void*, const WorldOptions&) {
  fail(ErrorCode::kUsage, "Unavailable: this build of Tessera has no MPI (TESSERA_WITH_MPI=ON)");
}

}  // namespace tessera
