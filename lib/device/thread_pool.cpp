#include "device/thread_pool.hpp"

#include <algorithm>

namespace tessera {

ThreadPool::ThreadPool(int threads) {
  for (int i = 1; i < threads; ++i) workers_.emplace_back([this, i] { work(i); });
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  start_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::parallel_for(std::int64_t count, std::int64_t grain, const Body& body) {
  if (count <= 0) return;
  grain = std::max<std::int64_t>(grain, 1);
  if (workers_.empty() || count <= grain) {
    body(0, count);
    return;
  }
  const std::lock_guard one_loop(caller_mutex_);
  std::unique_lock lock(mutex_);
  const std::int64_t grains = (count + grain - 1) / grain;
  body_ = &body;
  count_ = count;
  part_ = (grains + threads() - 1) / threads() * grain;
  failure_ = nullptr;
  running_ = static_cast<int>(workers_.size());
  ++generation_;
  lock.unlock();
  start_.notify_all();
  run_part(0);
  lock.lock();
  finished_.wait(lock, [&] { return running_ == 0; });
  if (failure_) std::rethrow_exception(failure_);
}

void ThreadPool::run_part(int index) noexcept {
  const std::int64_t begin = std::min(count_, part_ * index);
  const std::int64_t end = std::min(count_, begin + part_);
  if (begin == end) return;
  try {
    (*body_)(begin, end);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::current_exception();
  }
}

void ThreadPool::work(int index) {
  std::uint64_t seen = 0;
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      start_.wait(lock, [&] { return stopping_ || generation_ != seen; });
      if (stopping_) return;
      seen = generation_;
    }
    run_part(index);
    const std::lock_guard lock(mutex_);
    if (--running_ == 0) finished_.notify_one();
  }
}

}  // namespace tessera
