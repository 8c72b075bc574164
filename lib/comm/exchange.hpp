// A set of messages that are awaited together.
#pragma once

#include <memory>
#include <vector>

#include "comm/comm_thread.hpp"
#include "comm/transport.hpp"

namespace tessera {

/// Starts sends and receives of one operation and waits for all of them. The memory of the messages
/// is the caller's; after an error it may still be in use by a send (see memory_in_use()).
class Exchange {
 public:
  Exchange(Messenger& messenger, const GroupInfo& group, const Monitor& monitor)
      : messenger_(messenger), group_(group), monitor_(monitor) {}

  void send(int peer, int channel, std::span<const std::byte> data);
  void receive(int peer, int channel, std::span<std::byte> data);
  /// Waits until all are done. The timeout starts anew with each message that is done.
  void await(const OperationInfo& info);
  /// True when an error left a message behind that could not be called back: the memory of the
  /// operation must never be freed.
  bool memory_in_use() const { return memory_in_use_; }

 private:
  struct Pending {
    std::unique_ptr<Messenger::Request> request;
    int peer;
  };

  void await_all(const OperationInfo& info);

  Messenger& messenger_;
  const GroupInfo& group_;
  const Monitor& monitor_;
  std::vector<Pending> pending_;
  bool memory_in_use_ = false;
};

}  // namespace tessera
