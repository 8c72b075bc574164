// What all ranks of a job share beside their data: the first cause of a failure, and who has ended.
#pragma once

#include <tessera/error.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <string_view>

#include "comm/shared_memory.hpp"

namespace tessera {

/// Why the job ends.
struct Cause {
  int rank = -1;  ///< in the job
  int code = 1;   ///< exit code of the job
  std::string message;
};

/// The error that other ranks raise because of `cause`: its code, and "rank N: message".
class AbortedError : public Error {
 public:
  explicit AbortedError(const Cause& cause);
};

/// A peer that can't be reached any more, before its own error has arrived.
class LostPeerError : public Error {
 public:
  explicit LostPeerError(std::string message);
};

/// Code and message of an exception as a cause: those of an Error, else kInternal and what().
Cause cause_of(const std::exception_ptr& exception, int rank);

/// Carries causes between the ranks of a job. The first one published wins. Thread-safe.
class JobChannel {
 public:
  virtual ~JobChannel() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Offers a cause; never blocks long, never throws.
  virtual void publish(const Cause& cause) noexcept = 0;
  /// The first cause that has reached this rank.
  virtual std::optional<Cause> cause() = 0;

  /// Says that this rank is about to end with `message` (a hash, to find equal ones).
  virtual void publish_end(std::uint64_t message_hash) noexcept = 0;
  /// What publish_end() said on `rank`, once it has arrived.
  virtual std::optional<std::uint64_t> end_of(int rank) = 0;

  /// Moves messages; only the communication thread calls it. Channels in shared memory need none.
  virtual void progress() {}
  virtual bool needs_progress() const { return false; }
};

/// The channel in memory that all ranks see: plain memory between threads, shared between
/// processes.
class BoardChannel final : public JobChannel {
 public:
  /// Bytes of the board of a job of `ranks` ranks; zeros are an empty board.
  static std::size_t bytes(int ranks);
  /// `memory` is shared by all ranks.
  BoardChannel(std::shared_ptr<SharedMemory> memory, int rank, int ranks);

  int rank() const override { return rank_; }
  int size() const override { return ranks_; }
  void publish(const Cause& cause) noexcept override;
  std::optional<Cause> cause() override;
  void publish_end(std::uint64_t message_hash) noexcept override;
  std::optional<std::uint64_t> end_of(int rank) override;

 private:
  struct Board;
  struct End;
  std::shared_ptr<SharedMemory> memory_;
  Board* board_;
  End* ends_;
  int rank_;
  int ranks_;
};

}  // namespace tessera
