// The memory that the ranks of a group share when they can see each other's: between threads plain
// memory, between processes of one node a shared mapping. It is used by offsets only.
//
//   Gate | Slot × ranks | counts: 2 × ranks × (2 × ranks) int64 | window × ranks
//
// A window is where a rank stages its outgoing bytes for the others to read; its two halves are
// used in turn. Zeros are the initial state of all of it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "comm/operation.hpp"
#include "comm/shared_memory.hpp"

namespace tessera {

/// The parts of a group's shared memory, as one rank sees them.
class WindowLayout {
 public:
  struct Gate {
    alignas(64) std::atomic<std::uint32_t> arrived;
    alignas(64) std::atomic<std::uint32_t> generation;
    std::atomic<std::uint32_t> sleepers;
  };
  struct Slot {
    alignas(64) std::atomic<std::uint64_t> arrivals;  ///< how often this rank has come to the gate
    OperationInfo info[2];                            ///< by parity of the sequence number
  };

  /// `window_bytes` is rounded up so that each half holds 64 bytes for each rank.
  WindowLayout(std::shared_ptr<SharedMemory> memory, int ranks, std::int64_t window_bytes);
  /// Bytes of shared memory that the layout takes.
  static std::size_t bytes(int ranks, std::int64_t window_bytes);

  Gate& gate() const { return *reinterpret_cast<Gate*>(memory_->data()); }
  Slot& slot(int rank) const;
  /// What `rank` sends to each rank, then what it expects from each; two sets, used in turn.
  std::span<std::int64_t> counts(int rank, std::uint64_t parity) const;
  std::byte* half(int rank, std::uint64_t parity) const;
  std::size_t half_bytes() const { return half_bytes_; }

 private:
  static std::size_t rounded_half(int ranks, std::int64_t window_bytes);
  static std::size_t counts_offset(int ranks);
  static std::size_t windows_offset(int ranks);

  std::shared_ptr<SharedMemory> memory_;
  int ranks_;
  std::size_t half_bytes_;
};

}  // namespace tessera
