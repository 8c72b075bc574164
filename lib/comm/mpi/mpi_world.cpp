// Worlds over MPI.
#include <chrono>
#include <thread>

#include "base/check.hpp"
#include "comm/launch.hpp"
#include "comm/mpi/mpi_job.hpp"

namespace tessera {

namespace {

// The ranks of a launcher that this MPI does not know all take themselves for rank 0. The first one
// speaks; the others leave it the time to end the job.
constexpr std::chrono::seconds kFirstRankSpeaks{1};

std::unique_ptr<World> make_world(std::unique_ptr<MpiSession> session, MPI_Comm parent,
                                  const WorldOptions& options) {
  std::unique_ptr<Communicator> communicator =
      make_mpi_communicator(std::make_shared<MpiJob>(std::move(session), parent, options));
  CpuOptions cpu = options.cpu;
  if (cpu.threads <= 0) cpu.threads = threads_per_rank(*communicator);
  return std::make_unique<World>(std::move(communicator), make_cpu_device(cpu), options.logger);
}

}  // namespace

bool mpi_built_in() { return true; }

std::unique_ptr<World> make_mpi_world(int* argc, char*** argv, const WorldOptions& options) {
  auto session = std::make_unique<MpiSession>(argc, argv);
  int ranks = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const std::optional<LauncherHint> hint = detect_launcher();
  if (hint && hint->size > 1 && ranks == 1) {
    if (hint->rank > 0) std::this_thread::sleep_for(kFirstRankSpeaks);
    fail(ErrorCode::kUsage,
         "the launcher ({}) started {} processes, but MPI sees each of them alone: use the "
         "launcher of the MPI that Tessera was built with",
         hint->launcher, hint->size);
  }
  return make_world(std::move(session), MPI_COMM_WORLD, options);
}

std::unique_ptr<World> World::attach_mpi(void* mpi_communicator, const WorldOptions& options) {
  int initialized = 0;
  MPI_Initialized(&initialized);
  if (initialized == 0) fail(ErrorCode::kUsage, "attach_mpi: MPI is not initialised");
  return make_world(std::make_unique<MpiSession>(nullptr, nullptr),
                    *static_cast<MPI_Comm*>(mpi_communicator), options);
}

}  // namespace tessera
