// The job as MPI sees it: initialising and finalising, and what its communicators share.
#pragma once

#include <tessera/world.hpp>

#include <memory>
#include <utility>

#include "comm/job.hpp"
#include "comm/mpi/mpi_header.hpp"

namespace tessera {

/// MPI of this process. Finalises it when it has initialised it.
class MpiSession {
 public:
  /// Initialises MPI unless somebody has. Raises Error{kUsage} when MPI allows calls from one
  /// thread only, or is finalised already.
  MpiSession(int* argc, char*** argv);
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  /// From now on finalising may take only a few seconds; then the process ends with `code`.
  void expect_trouble(int code) { trouble_code_ = code; }

 private:
  bool owns_ = false;
  int trouble_code_ = 0;
};

/// What the communicators of one job share; destroyed after all of them.
class MpiJob {
 public:
  /// Duplicates `parent`. Collective over it.
  MpiJob(std::unique_ptr<MpiSession> session, MPI_Comm parent, const WorldOptions& options);
  ~MpiJob();

  const WorldOptions& options() const { return options_; }
  const std::shared_ptr<JobChannel>& channel() const { return channel_; }
  /// More ranks than cores on this node: waits sleep at once.
  bool crowded() const { return crowded_; }
  /// The communicator of all ranks, to be taken over by the world's communicator.
  MPI_Comm take_world() { return std::exchange(world_, MPI_COMM_NULL); }

 private:
  bool measure_crowding() const;
  std::shared_ptr<JobChannel> make_channel() const;

  std::unique_ptr<MpiSession> session_;
  WorldOptions options_;
  MPI_Comm world_;
  bool crowded_ = false;
  std::shared_ptr<JobChannel> channel_;
};

/// The communicator of all ranks of a job.
std::unique_ptr<Communicator> make_mpi_communicator(std::shared_ptr<MpiJob> job);

}  // namespace tessera
