#include "comm/mpi/mpi_channel.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "comm/mpi/mpi_support.hpp"

namespace tessera {

namespace {

constexpr int kTag = 0;
constexpr std::chrono::seconds kFarewell{1};

}  // namespace

MpiChannel::MpiChannel(MPI_Comm comm) : comm_(comm) {
  check_mpi(MPI_Comm_rank(comm, &rank_), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(comm, &size_), "MPI_Comm_size");
  ends_.resize(static_cast<std::size_t>(size_));
  expect_notice();
}

MpiChannel::~MpiChannel() {
  try {
    send_outbox();
  } catch (...) {
    // Nobody is left to tell.
  }
  const auto deadline = std::chrono::steady_clock::now() + kFarewell;
  while (!all_sent() && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  for (std::unique_ptr<Outgoing>& left : outgoing_) static_cast<void>(left.release());
  if (incoming_request_ != MPI_REQUEST_NULL) {
    MPI_Cancel(&incoming_request_);
    MPI_Wait(&incoming_request_, MPI_STATUS_IGNORE);
  }
  if (!cause_) MPI_Comm_free(&comm_);
}

void MpiChannel::expect_notice() {
  check_mpi(MPI_Irecv(incoming_.get(), sizeof(Notice), MPI_BYTE, MPI_ANY_SOURCE, kTag, comm_,
                      &incoming_request_),
            "MPI_Irecv");
}

void MpiChannel::publish(const Cause& cause) noexcept {
  const std::lock_guard lock(mutex_);
  if (cause_) return;
  try {
    cause_ = cause;
    Notice notice;
    notice.rank = cause.rank;
    notice.code = cause.code;
    std::memcpy(notice.message.data(), cause.message.data(),
                std::min(cause.message.size(), notice.message.size() - 1));
    outbox_.push_back(notice);
  } catch (...) {
    // No memory even for this: the other ranks will run into their timeout.
  }
}

std::optional<Cause> MpiChannel::cause() {
  const std::lock_guard lock(mutex_);
  return cause_;
}

void MpiChannel::publish_end(std::uint64_t message_hash) noexcept {
  const std::lock_guard lock(mutex_);
  if (ends_[static_cast<std::size_t>(rank_)]) return;
  ends_[static_cast<std::size_t>(rank_)] = message_hash;
  try {
    Notice notice;
    notice.is_end = 1;
    notice.rank = rank_;
    notice.hash = message_hash;
    outbox_.push_back(notice);
  } catch (...) {
    // As above.
  }
}

std::optional<std::uint64_t> MpiChannel::end_of(int rank) {
  const std::lock_guard lock(mutex_);
  return ends_[static_cast<std::size_t>(rank)];
}

void MpiChannel::send_outbox() {
  std::vector<Notice> notices;
  {
    const std::lock_guard lock(mutex_);
    notices.swap(outbox_);
  }
  for (const Notice& notice : notices) {
    auto outgoing = std::make_unique<Outgoing>();
    outgoing->notice = notice;
    for (int peer = 0; peer < size_; ++peer) {
      if (peer == rank_) continue;
      check_mpi(MPI_Isend(&outgoing->notice, sizeof(Notice), MPI_BYTE, peer, kTag, comm_,
                          &outgoing->requests.emplace_back(MPI_REQUEST_NULL)),
                "MPI_Isend");
    }
    outgoing_.push_back(std::move(outgoing));
  }
}

bool MpiChannel::all_sent() {
  std::erase_if(outgoing_, [](const std::unique_ptr<Outgoing>& outgoing) {
    int finished = 0;
    MPI_Testall(static_cast<int>(outgoing->requests.size()), outgoing->requests.data(), &finished,
                MPI_STATUSES_IGNORE);
    return finished != 0;
  });
  return outgoing_.empty();
}

void MpiChannel::progress() {
  send_outbox();
  if (!outgoing_.empty()) all_sent();
  int arrived = 0;
  check_mpi(MPI_Test(&incoming_request_, &arrived, MPI_STATUS_IGNORE), "MPI_Test");
  if (arrived == 0) return;
  {
    const std::lock_guard lock(mutex_);
    if (incoming_->is_end != 0) {
      ends_[static_cast<std::size_t>(incoming_->rank)] = incoming_->hash;
    } else if (!cause_) {
      cause_ = Cause{incoming_->rank, incoming_->code, incoming_->message.data()};
    }
  }
  expect_notice();
}

}  // namespace tessera
