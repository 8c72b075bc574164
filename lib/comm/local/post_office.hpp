// Messages between threads of one process.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "comm/transport.hpp"

namespace tessera {

/// One mailbox per rank of a group.
class PostOffice {
 public:
  using Key = std::pair<int, int>;  // source, channel
  struct Box {
    std::mutex mutex;
    std::condition_variable arrived;
    std::uint64_t arrivals = 0;
    std::map<Key, std::deque<std::vector<std::byte>>> messages;
  };

  explicit PostOffice(int ranks) : boxes_(static_cast<std::size_t>(ranks)) {}
  Box& box(int rank) { return boxes_[static_cast<std::size_t>(rank)]; }

 private:
  std::deque<Box> boxes_;
};

/// A rank's access to its group's post office. Sends are copied and done at once.
class LocalMessenger final : public Messenger {
 public:
  LocalMessenger(std::shared_ptr<PostOffice> office, int rank)
      : office_(std::move(office)), rank_(rank) {}

  std::unique_ptr<Request> send(int destination, int channel,
                                std::span<const std::byte> data) override;
  std::unique_ptr<Request> receive(int source, int channel, std::span<std::byte> data) override;
  bool done(Request& request) override;
  bool cancel(Request& request) override;
  void rest(int idle, std::chrono::nanoseconds limit) override;

 private:
  struct Receive;
  void deliver(const PostOffice::Key& key);

  std::shared_ptr<PostOffice> office_;
  int rank_;
  std::uint64_t seen_ = 0;
  std::map<PostOffice::Key, std::deque<Receive*>> posted_;  // in the order of their posting
};

}  // namespace tessera
