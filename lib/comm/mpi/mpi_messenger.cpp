#include "comm/mpi/mpi_messenger.hpp"

#include <algorithm>
#include <thread>
#include <vector>

#include "comm/mpi/mpi_support.hpp"

namespace tessera {

namespace {

constexpr std::int64_t kMaxPiece = std::int64_t{1} << 30;
// A receive that has begun to arrive can't be called back; it gets this long to finish.
constexpr std::chrono::milliseconds kCancelGrace{200};

struct MpiRequest final : Messenger::Request {
  std::vector<MPI_Request> pieces;
  bool is_send = false;
};

}  // namespace

MpiMessenger::MpiMessenger(MPI_Comm comm, std::int64_t piece_bytes, bool crowded)
    : comm_(comm),
      piece_bytes_(static_cast<std::size_t>(std::clamp<std::int64_t>(piece_bytes, 1, kMaxPiece))),
      crowded_(crowded) {}

std::unique_ptr<Messenger::Request> MpiMessenger::send(int destination, int channel,
                                                       std::span<const std::byte> data) {
  auto request = std::make_unique<MpiRequest>();
  request->is_send = true;
  for (std::size_t begin = 0; begin < data.size(); begin += piece_bytes_) {
    const std::size_t bytes = std::min(piece_bytes_, data.size() - begin);
    check_mpi(MPI_Isend(data.data() + begin, static_cast<int>(bytes), MPI_BYTE, destination,
                        channel, comm_, &request->pieces.emplace_back(MPI_REQUEST_NULL)),
              "MPI_Isend");
  }
  return request;
}

std::unique_ptr<Messenger::Request> MpiMessenger::receive(int source, int channel,
                                                          std::span<std::byte> data) {
  auto request = std::make_unique<MpiRequest>();
  for (std::size_t begin = 0; begin < data.size(); begin += piece_bytes_) {
    const std::size_t bytes = std::min(piece_bytes_, data.size() - begin);
    check_mpi(MPI_Irecv(data.data() + begin, static_cast<int>(bytes), MPI_BYTE, source, channel,
                        comm_, &request->pieces.emplace_back(MPI_REQUEST_NULL)),
              "MPI_Irecv");
  }
  return request;
}

bool MpiMessenger::done(Request& request) {
  auto& mine = static_cast<MpiRequest&>(request);
  int finished = 0;
  check_mpi(MPI_Testall(static_cast<int>(mine.pieces.size()), mine.pieces.data(), &finished,
                        MPI_STATUSES_IGNORE),
            "MPI_Testall");
  return finished != 0;
}

bool MpiMessenger::cancel(Request& request) {
  auto& mine = static_cast<MpiRequest&>(request);
  if (!mine.is_send) {
    for (MPI_Request& piece : mine.pieces) {
      if (piece != MPI_REQUEST_NULL) MPI_Cancel(&piece);
    }
  }
  const auto deadline = std::chrono::steady_clock::now() + kCancelGrace;
  do {
    int finished = 0;
    const int result = MPI_Testall(static_cast<int>(mine.pieces.size()), mine.pieces.data(),
                                   &finished, MPI_STATUSES_IGNORE);
    if (result != MPI_SUCCESS) return false;
    if (finished != 0) return true;
    std::this_thread::yield();
  } while (!mine.is_send && std::chrono::steady_clock::now() < deadline);
  return false;
}

void MpiMessenger::rest(int idle, std::chrono::nanoseconds limit) {
  if (!crowded_ && idle < 200) return;
  if (idle < 400) {
    std::this_thread::yield();
    return;
  }
  const std::chrono::microseconds pause(idle < 2000 ? 50 : 500);
  std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(pause, limit));
}

}  // namespace tessera
