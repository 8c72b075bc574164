// World: everything one rank of a job has. There is no global state; all objects of the library are
// made from a World, and it outlives them.
#pragma once

#include <tessera/comm.hpp>
#include <tessera/device.hpp>
#include <tessera/export.hpp>
#include <tessera/log.hpp>
#include <tessera/options.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace tessera {

/// How a World is made by hand.
struct WorldOptions {
  CommOptions comm;
  CpuOptions cpu;                  ///< threads of 0 = this rank's share of the cores it may use
  std::shared_ptr<Logger> logger;  ///< null = a null logger
  /// Use messages even between ranks that share memory; the results have the same bits.
  bool force_point_to_point = false;
  /// Longer messages are cut into pieces of this many bytes, at most 2^30.
  std::int64_t message_bytes = std::int64_t{1} << 30;
};

/// One rank's view of the job: its rank, its device, its communicator and its logger.
class TESSERA_API World {
 public:
  World(std::unique_ptr<Communicator> communicator, std::unique_ptr<Device> device,
        std::shared_ptr<Logger> logger);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  int rank() const;
  int size() const;
  Communicator& comm() const { return *communicator_; }
  Device& device() const { return *device_; }
  Logger& logger() const { return *logger_; }
  const std::shared_ptr<Logger>& shared_logger() const { return logger_; }
  /// Replaces the logger, for instance once the run folder is known.
  void set_logger(std::shared_ptr<Logger> logger);

  /// For programs that call MPI_Init themselves: a World over `mpi_communicator` (a pointer to an
  /// MPI_Comm, duplicated). Collective over it. Tessera calls MPI from a thread of its
  /// own, so the program needs MPI_THREAD_MULTIPLE; MPI_THREAD_SERIALIZED is enough for one World
  /// whose ranks share a node, if the program does not call MPI while operations are under way.
  /// Destroy the World before MPI_Finalize. Never exits the process. Raises
  /// Error{kUsage} "Unavailable" in a build without MPI.
  static std::unique_ptr<World> attach_mpi(void* mpi_communicator, const WorldOptions& options);
  /// A World of one rank.
  static std::unique_ptr<World> single(const WorldOptions& options = {});

 private:
  std::unique_ptr<Device> device_;
  std::unique_ptr<Communicator> communicator_;
  std::shared_ptr<Logger> logger_;
};

/// Runs `body` on `ranks` threads, one World each, connected by the local backend. When a body
/// throws, the others' operations end and the first cause is rethrown here after all have returned.
/// This is how distributed code is tested without a launcher.
TESSERA_API void run_ranks(int ranks, const WorldOptions& options,
                           const std::function<void(World&)>& body);
TESSERA_API void run_ranks(int ranks, const std::function<void(World&)>& body);

}  // namespace tessera
