// Collectives through windows of shared memory.
#pragma once

#include <chrono>
#include <memory>

#include "comm/comm_thread.hpp"
#include "comm/transport.hpp"
#include "comm/window.hpp"

namespace tessera {

/// Every rank writes a chunk into its window, all meet at the gate, and each reads what it needs
/// from the others. The halves of the windows alternate, so one meeting per chunk is enough: who
/// comes to the gate for a chunk has finished reading the one before, whose half is then free for
/// the next.
class WindowTransport final : public Transport {
 public:
  /// `spin`: how long a wait keeps the core before it sleeps.
  WindowTransport(WindowLayout layout, const GroupInfo& group, const Monitor& monitor,
                  std::chrono::nanoseconds spin);

  void all_gather(const OperationInfo& info, const std::byte* input, std::byte* output,
                  std::size_t bytes) override;
  void reduce_scatter(const OperationInfo& info, const std::byte* input, std::byte* output,
                      std::int64_t elements, DType dtype, ReduceOp op) override;
  void all_reduce(const OperationInfo& info, const std::byte* input, std::byte* output,
                  std::int64_t elements, DType dtype, ReduceOp op) override;
  void all_to_all(const OperationInfo& info, const std::byte* input,
                  std::span<const std::int64_t> send_bytes, std::byte* output,
                  std::span<const std::int64_t> receive_bytes) override;
  void broadcast(const OperationInfo& info, std::byte* data, std::size_t bytes, int root) override;
  void barrier(const OperationInfo& info) override;

 private:
  /// Publishes `info`; the first meet() of the operation compares it.
  void enter(const OperationInfo& info);
  /// Comes to the gate and waits for the others.
  void meet();
  void pass_gate();
  [[noreturn]] void report_missing();
  std::int64_t agree_on_rounds(std::size_t part_bytes);
  /// The half that the current chunk uses.
  std::byte* half(int rank) const { return layout_.half(rank, chunk_ & 1); }

  WindowLayout layout_;
  const GroupInfo& group_;
  const Monitor& monitor_;
  std::chrono::nanoseconds spin_;
  int ranks_;
  int rank_;
  std::uint64_t chunk_ = 0;
  std::uint64_t arrivals_ = 0;
  OperationInfo info_;
  bool compared_ = false;
};

}  // namespace tessera
