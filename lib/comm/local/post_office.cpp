#include "comm/local/post_office.hpp"

#include <algorithm>
#include <cstring>

#include "base/check.hpp"

namespace tessera {

struct LocalMessenger::Receive final : Messenger::Request {
  PostOffice::Key key;
  std::span<std::byte> data;
  bool done = false;
};

std::unique_ptr<Messenger::Request> LocalMessenger::send(int destination, int channel,
                                                         std::span<const std::byte> data) {
  std::vector<std::byte> message(data.begin(), data.end());
  PostOffice::Box& box = office_->box(destination);
  {
    const std::lock_guard lock(box.mutex);
    box.messages[{rank_, channel}].push_back(std::move(message));
    ++box.arrivals;
  }
  box.arrived.notify_one();
  return std::make_unique<Request>();
}

std::unique_ptr<Messenger::Request> LocalMessenger::receive(int source, int channel,
                                                            std::span<std::byte> data) {
  auto request = std::make_unique<Receive>();
  request->key = {source, channel};
  request->data = data;
  posted_[request->key].push_back(request.get());
  return request;
}

void LocalMessenger::deliver(const PostOffice::Key& key) {
  std::deque<Receive*>& posted = posted_[key];
  PostOffice::Box& box = office_->box(rank_);
  const std::lock_guard lock(box.mutex);
  std::deque<std::vector<std::byte>>& messages = box.messages[key];
  while (!posted.empty() && !messages.empty()) {
    Receive& receive = *posted.front();
    const std::vector<std::byte>& message = messages.front();
    TESSERA_CHECK(message.size() == receive.data.size(), "a message of {} bytes where {} fit",
                  message.size(), receive.data.size());
    std::memcpy(receive.data.data(), message.data(), message.size());
    receive.done = true;
    posted.pop_front();
    messages.pop_front();
  }
}

bool LocalMessenger::done(Request& request) {
  auto* const receive = dynamic_cast<Receive*>(&request);
  if (receive == nullptr) return true;
  if (!receive->done) deliver(receive->key);
  return receive->done;
}

bool LocalMessenger::cancel(Request& request) {
  auto* const receive = dynamic_cast<Receive*>(&request);
  if (receive != nullptr && !receive->done) std::erase(posted_[receive->key], receive);
  return true;
}

void LocalMessenger::rest(int, std::chrono::nanoseconds limit) {
  PostOffice::Box& box = office_->box(rank_);
  std::unique_lock lock(box.mutex);
  box.arrived.wait_for(lock, limit, [&] { return box.arrivals != seen_; });
  seen_ = box.arrivals;
}

}  // namespace tessera
