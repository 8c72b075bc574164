// Starting and ending a job: what run() needs to know about launchers, threads and exit codes.
#pragma once

#include <tessera/world.hpp>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

/// What the environment says about the launcher. A hint only: rank and size come from MPI itself.
struct LauncherHint {
  std::string launcher;  ///< "Open MPI", "MPICH", "Slurm", …
  int rank = -1;         ///< -1 = not said
  int size = -1;
};

/// The launcher that started this process, if one did.
std::optional<LauncherHint> detect_launcher();
/// True when a launcher of MPI jobs started this process, if only with one rank.
bool launched_by_mpi();

/// True when this build can make MPI worlds.
bool mpi_built_in();
/// True when this build can move memory of GPUs.
bool nccl_built_in();

/// Initialises MPI where nobody has, and makes the World of this process: device threads as
/// threads_per_rank() says where options.cpu.threads is 0. MPI is finalised when the World is
/// destroyed, on the thread that called this. Raises Error{kUsage} when this build has no MPI, or
/// when the launcher started several processes that MPI sees as jobs of one (a launcher of another
/// MPI). Blocking and collective over all ranks of the job.
std::unique_ptr<World> make_mpi_world(int* argc, char*** argv, const WorldOptions& options);

/// A good end: waits until all ranks are here, so that a rank that fails late still ends the job
/// with its error. Afterwards destroy the World and return 0.
void finish_job(World& world);

/// The end of a rank that failed with `code` and `message` (its own error, or one it received):
/// makes the whole job end. It waits up to 2 s for the others to fail too, then prints what this
/// rank has to print on stderr: each message once per job, by the lowest rank that has it, and
/// received messages not at all. Returns the exit code of the job, that of the first cause: destroy
/// the World and return it. When other ranks do not react in time, MPI is aborted with the code and
/// this never returns.
int end_job(World& world, int code, std::string_view message);
/// The same for an exception, with the codes of <tessera/error.hpp>.
int end_job(World& world, const std::exception_ptr& failure);
/// The exit code of an exception: that of an Error, else 1.
int exit_code_of(const std::exception_ptr& failure);

/// Writes `tessera: error: message` to stderr in one piece, with "[rank N] " before it when rank >
/// 0.
void print_error(int rank, std::string_view message);

/// CPU numbers, ascending.
using CpuSet = std::vector<int>;
/// The CPUs that this thread may use.
CpuSet own_cpus();
/// Threads of rank `rank` from the CPU masks of all ranks of its node: its own mask where no two
/// masks overlap, else the union of all divided by the number of ranks; at least 1.
int threads_per_rank(std::span<const CpuSet> node_masks, int rank);
/// The same for the ranks of a communicator that are on this rank's node. Collective.
int threads_per_rank(Communicator& communicator);
/// The same for `ranks` threads of this process.
int threads_per_local_rank(int ranks);

}  // namespace tessera
