// Collectives by point-to-point messages, for groups whose ranks share no memory.
#pragma once

#include <memory>
#include <vector>

#include "comm/exchange.hpp"
#include "comm/transport.hpp"

namespace tessera {

/// Every rank greets every other at the start of an operation, which names absence and
/// disagreement, then exchanges data directly with it. Reductions collect the parts of all ranks
/// and sum them along the same tree as WindowTransport.
class MessageTransport final : public Transport {
 public:
  /// `staging_bytes` bounds the memory that a reduction collects at once; 64 MiB at most.
  MessageTransport(Messenger& messenger, const GroupInfo& group, const Monitor& monitor,
                   std::int64_t staging_bytes);

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
  bool memory_in_use() const override { return staging_ == nullptr; }

 private:
  struct Greeting {
    OperationInfo info;
    std::int64_t bytes_to_you = 0;
    std::int64_t bytes_from_you = 0;
  };

  /// Greets all ranks and compares. Counts are empty where all ranks move equally much.
  void enter(const OperationInfo& info, std::span<const std::int64_t> send_bytes = {},
             std::span<const std::int64_t> receive_bytes = {});
  /// The rank `step` places after this one.
  int peer(int step) const { return (rank_ + step) % ranks_; }
  /// Waits for the messages; memory that they may still use after an error is never freed.
  void await(Exchange& exchange, const OperationInfo& info);
  /// Bytes of staging per rank, all of it allocated.
  std::size_t staging_stride();
  std::byte* staging(int rank, std::size_t stride) {
    return staging_->data() + static_cast<std::size_t>(rank) * stride;
  }

  Messenger& messenger_;
  const GroupInfo& group_;
  const Monitor& monitor_;
  int ranks_;
  int rank_;
  std::size_t staging_bytes_;
  std::unique_ptr<std::vector<std::byte>> staging_;
  std::unique_ptr<std::vector<Greeting>> greetings_;  // mine to each rank, then theirs
};

}  // namespace tessera
