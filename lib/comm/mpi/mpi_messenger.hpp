// Messages by MPI's non-blocking point-to-point calls.
#pragma once

#include <cstdint>
#include <memory>

#include "comm/mpi/mpi_header.hpp"
#include "comm/transport.hpp"

namespace tessera {

/// Cuts messages into pieces, so that no count exceeds what MPI can take.
class MpiMessenger final : public Messenger {
 public:
  /// `comm` is used by nobody else. `crowded`: more ranks than cores, so never keep one busy.
  MpiMessenger(MPI_Comm comm, std::int64_t piece_bytes, bool crowded);

  std::unique_ptr<Request> send(int destination, int channel,
                                std::span<const std::byte> data) override;
  std::unique_ptr<Request> receive(int source, int channel, std::span<std::byte> data) override;
  bool done(Request& request) override;
  bool cancel(Request& request) override;
  void rest(int idle, std::chrono::nanoseconds limit) override;

 private:
  MPI_Comm comm_;
  std::size_t piece_bytes_;
  bool crowded_;
};

}  // namespace tessera
