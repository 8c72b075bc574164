// The seam between a group's operations and how its bytes move. All functions block, run on the
// communication thread, and raise an Error when peers disagree, do not come in time, or have
// failed.
#pragma once

#include <tessera/comm.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "comm/operation.hpp"

namespace tessera {

/// Collectives on bytes (those without arithmetic) and elements. In-place rules are those of
/// <tessera/comm.hpp>. `info` is what this rank publishes; the others' must agree with it.
class Transport {
 public:
  virtual ~Transport() = default;

  /// `bytes` per rank.
  virtual void all_gather(const OperationInfo& info, const std::byte* input, std::byte* output,
                          std::size_t bytes) = 0;
  /// `elements` per rank.
  virtual void reduce_scatter(const OperationInfo& info, const std::byte* input, std::byte* output,
                              std::int64_t elements, DType dtype, ReduceOp op) = 0;
  virtual void all_reduce(const OperationInfo& info, const std::byte* input, std::byte* output,
                          std::int64_t elements, DType dtype, ReduceOp op) = 0;
  /// Bytes per peer, packed without gaps; the two sides' numbers are compared.
  virtual void all_to_all(const OperationInfo& info, const std::byte* input,
                          std::span<const std::int64_t> send_bytes, std::byte* output,
                          std::span<const std::int64_t> receive_bytes) = 0;
  virtual void broadcast(const OperationInfo& info, std::byte* data, std::size_t bytes,
                         int root) = 0;
  virtual void barrier(const OperationInfo& info) = 0;

  /// True when a failed operation left messages behind that may still read its memory, which must
  /// then never be freed.
  virtual bool memory_in_use() const { return false; }
};

/// Point-to-point bytes between the ranks of a group, on a few numbered channels. Messages on one
/// channel between two ranks arrive in order. Only on the communication thread.
class Messenger {
 public:
  /// A send or receive on its way.
  struct Request {
    virtual ~Request() = default;
  };

  virtual ~Messenger() = default;

  /// `data` stays valid and unchanged until the request is done. Any length.
  virtual std::unique_ptr<Request> send(int destination, int channel,
                                        std::span<const std::byte> data) = 0;
  /// Receives a message of exactly data.size() bytes.
  virtual std::unique_ptr<Request> receive(int source, int channel, std::span<std::byte> data) = 0;
  /// Moves messages; true when the request is done.
  virtual bool done(Request& request) = 0;
  /// Gives up: true when the request's memory will not be touched any more.
  virtual bool cancel(Request& request) = 0;
  /// Sleeps until something may have happened, at most `limit`. `idle` counts the fruitless turns.
  virtual void rest(int idle, std::chrono::nanoseconds limit) = 0;
};

/// The channels of a messenger.
inline constexpr int kChannelRecords = 0;
inline constexpr int kChannelData = 1;
inline constexpr int kChannelUser = 2;

}  // namespace tessera
