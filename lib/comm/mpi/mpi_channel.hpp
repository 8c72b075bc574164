// What the ranks of a job tell each other when they share no memory.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <vector>

#include "comm/job.hpp"
#include "comm/mpi/mpi_header.hpp"

namespace tessera {

/// Sends causes and ends to all ranks. The communication thread moves them (progress()).
class MpiChannel final : public JobChannel {
 public:
  /// `comm` belongs to the channel, which frees it. Made and destroyed while no other thread of the
  /// process calls MPI.
  explicit MpiChannel(MPI_Comm comm);
  ~MpiChannel() override;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void publish(const Cause& cause) noexcept override;
  std::optional<Cause> cause() override;
  void publish_end(std::uint64_t message_hash) noexcept override;
  std::optional<std::uint64_t> end_of(int rank) override;
  void progress() override;
  bool needs_progress() const override { return true; }

 private:
  struct Notice {
    int is_end = 0;
    int rank = 0;
    int code = 0;
    std::uint64_t hash = 0;
    std::array<char, 1000> message{};
  };
  struct Outgoing {
    Notice notice;
    std::vector<MPI_Request> requests;
  };

  void expect_notice();
  void send_outbox();
  bool all_sent();

  MPI_Comm comm_;
  int rank_ = 0;
  int size_ = 0;
  // Used by the communication thread alone.
  std::unique_ptr<Notice> incoming_ = std::make_unique<Notice>();
  MPI_Request incoming_request_ = MPI_REQUEST_NULL;
  std::vector<std::unique_ptr<Outgoing>> outgoing_;

  std::mutex mutex_;
  std::vector<Notice> outbox_;
  std::optional<Cause> cause_;
  std::vector<std::optional<std::uint64_t>> ends_;
};

}  // namespace tessera
