#include "comm/job.hpp"

#include <algorithm>
#include <cstring>

#include "base/check.hpp"

namespace tessera {

AbortedError::AbortedError(const Cause& cause)
    : Error(static_cast<ErrorCode>(cause.code == 0 ? 1 : cause.code),
            fmt::format("rank {}: {}", cause.rank, cause.message)) {}

LostPeerError::LostPeerError(std::string message) : Error(ErrorCode::kPeer, std::move(message)) {}

Cause cause_of(const std::exception_ptr& exception, int rank) {
  try {
    std::rethrow_exception(exception);
  } catch (const Error& error) {
    return {rank, static_cast<int>(error.code()), error.what()};
  } catch (const std::exception& error) {
    return {rank, static_cast<int>(ErrorCode::kInternal), error.what()};
  } catch (...) {
    return {rank, static_cast<int>(ErrorCode::kInternal), "an exception of unknown type"};
  }
}

// Zeros are the initial state, so that fresh shared memory needs no construction.
struct BoardChannel::Board {
  std::atomic<std::uint32_t> claimed;
  std::atomic<std::uint32_t> written;
  std::int32_t rank;
  std::int32_t code;
  std::array<char, 2048> message;
};

struct alignas(64) BoardChannel::End {
  std::atomic<std::uint32_t> written;
  std::uint64_t hash;
};

std::size_t BoardChannel::bytes(int ranks) {
  return (sizeof(Board) + 63) / 64 * 64 + static_cast<std::size_t>(ranks) * sizeof(End);
}

BoardChannel::BoardChannel(std::shared_ptr<SharedMemory> memory, int rank, int ranks)
    : memory_(std::move(memory)),
      board_(reinterpret_cast<Board*>(memory_->data())),
      ends_(reinterpret_cast<End*>(memory_->data() + (sizeof(Board) + 63) / 64 * 64)),
      rank_(rank),
      ranks_(ranks) {}

void BoardChannel::publish(const Cause& cause) noexcept {
  if (board_->claimed.exchange(1) != 0) return;
  board_->rank = cause.rank;
  board_->code = cause.code;
  const std::size_t length = std::min(cause.message.size(), board_->message.size() - 1);
  std::memcpy(board_->message.data(), cause.message.data(), length);
  board_->message[length] = '\0';
  board_->written.store(1, std::memory_order_release);
}

std::optional<Cause> BoardChannel::cause() {
  if (board_->written.load(std::memory_order_acquire) == 0) return std::nullopt;
  return Cause{board_->rank, board_->code, board_->message.data()};
}

void BoardChannel::publish_end(std::uint64_t message_hash) noexcept {
  End& end = ends_[rank_];
  if (end.written.load(std::memory_order_relaxed) != 0) return;
  end.hash = message_hash;
  end.written.store(1, std::memory_order_release);
}

std::optional<std::uint64_t> BoardChannel::end_of(int rank) {
  if (ends_[rank].written.load(std::memory_order_acquire) == 0) return std::nullopt;
  return ends_[rank].hash;
}

}  // namespace tessera
