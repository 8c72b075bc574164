#include "comm/exchange.hpp"

#include <algorithm>

namespace tessera {

void Exchange::send(int peer, int channel, std::span<const std::byte> data) {
  if (!data.empty()) pending_.push_back({messenger_.send(peer, channel, data), peer});
}

void Exchange::receive(int peer, int channel, std::span<std::byte> data) {
  if (!data.empty()) pending_.push_back({messenger_.receive(peer, channel, data), peer});
}

void Exchange::await(const OperationInfo& info) {
  try {
    await_all(info);
  } catch (...) {
    for (Pending& pending : pending_) {
      if (messenger_.cancel(*pending.request)) continue;
      memory_in_use_ = true;
      static_cast<void>(pending.request.release());  // the messages layer still refers to it
    }
    pending_.clear();
    throw;
  }
}

void Exchange::await_all(const OperationInfo& info) {
  auto deadline = monitor_.deadline();
  for (int idle = 0; !pending_.empty(); ++idle) {
    const std::size_t finished = std::erase_if(
        pending_, [&](const Pending& pending) { return messenger_.done(*pending.request); });
    if (pending_.empty()) return;
    if (finished > 0) {
      deadline = monitor_.deadline();
      idle = 0;
    }
    monitor_.check();
    if (std::chrono::steady_clock::now() >= deadline) {
      std::vector<int> missing;
      for (const Pending& pending : pending_) missing.push_back(pending.peer);
      std::sort(missing.begin(), missing.end());
      missing.erase(std::unique(missing.begin(), missing.end()), missing.end());
      timed_out(group_, info, monitor_.timeout_s(), missing);
    }
    messenger_.rest(idle, monitor_.slice());
  }
}

}  // namespace tessera
