#include "comm/mpi/mpi_job.hpp"

#include <array>
#include <bit>
#include <chrono>
#include <thread>

#include <unistd.h>

#include "base/check.hpp"
#include "comm/launch.hpp"
#include "comm/mpi/mpi_channel.hpp"
#include "comm/mpi/mpi_support.hpp"

namespace tessera {

namespace {

constexpr std::chrono::seconds kFinalizeGrace{5};

}  // namespace

MpiSession::MpiSession(int* argc, char*** argv) {
  int initialized = 0;
  int finalized = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  if (finalized != 0) fail(ErrorCode::kUsage, "MPI is finalised already and cannot start again");
  int level = MPI_THREAD_SINGLE;
  if (initialized == 0) {
    check_mpi(MPI_Init_thread(argc, argv, MPI_THREAD_SERIALIZED, &level), "MPI_Init_thread");
    owns_ = true;
  } else {
    MPI_Query_thread(&level);
  }
  if (level >= MPI_THREAD_SERIALIZED) return;
  if (owns_) MPI_Finalize();
  fail(ErrorCode::kUsage,
       "MPI allows calls from its main thread only; MPI_THREAD_SERIALIZED is needed");
}

MpiSession::~MpiSession() {
  if (!owns_) return;
  if (trouble_code_ != 0) {
    // A peer that is gone must not keep this process.
    std::thread([code = trouble_code_] {
      std::this_thread::sleep_for(kFinalizeGrace);
      _exit(code);
    }).detach();
  }
  MPI_Finalize();
}

MpiJob::MpiJob(std::unique_ptr<MpiSession> session, MPI_Comm parent, const WorldOptions& options)
    : session_(std::move(session)),
      options_(options),
      world_(duplicate(parent)),
      crowded_(measure_crowding()),
      channel_(make_channel()) {}

MpiJob::~MpiJob() {
  if (const std::optional<Cause> cause = channel_->cause()) {
    session_->expect_trouble(cause->code == 0 ? 1 : cause->code);
  }
  channel_.reset();
}

bool MpiJob::measure_crowding() const {
  MPI_Comm node = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split_type(world_, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node),
            "MPI_Comm_split_type");
  std::array<unsigned char, 1024> mine{};
  std::array<unsigned char, 1024> all{};
  for (const int cpu : own_cpus()) {
    const auto byte = static_cast<std::size_t>(cpu) / 8;
    if (byte < mine.size()) mine[byte] = static_cast<unsigned char>(mine[byte] | 1u << (cpu % 8));
  }
  check_mpi(MPI_Allreduce(mine.data(), all.data(), static_cast<int>(all.size()), MPI_UNSIGNED_CHAR,
                          MPI_BOR, node),
            "MPI_Allreduce");
  int ranks = 0;
  MPI_Comm_size(node, &ranks);
  MPI_Comm_free(&node);
  int cores = 0;
  for (const unsigned char byte : all) cores += std::popcount(byte);
  return ranks > cores;
}

std::shared_ptr<JobChannel> MpiJob::make_channel() const {
  int rank = 0;
  int ranks = 0;
  MPI_Comm_rank(world_, &rank);
  MPI_Comm_size(world_, &ranks);
  if (!options_.force_point_to_point) {
    std::string reason;
    const std::size_t bytes = BoardChannel::bytes(ranks);
    if (auto memory = make_node_memory(world_, bytes, reason)) {
      return std::make_shared<BoardChannel>(std::move(memory), rank, ranks);
    }
  }
  return std::make_shared<MpiChannel>(duplicate(world_));
}

}  // namespace tessera
