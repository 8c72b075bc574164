// A pool of threads that share one loop at a time.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace tessera {

/// `threads` threads in all, the caller's included. Parts of a loop are dealt in fixed contiguous
/// pieces, one per thread.
class ThreadPool {
 public:
  using Body = std::function<void(std::int64_t, std::int64_t)>;

  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }
  /// Calls body(begin, end) so that [0, count) is covered once; begins are multiples of `grain`.
  /// The first exception of a part is rethrown after all parts have ended.
  void parallel_for(std::int64_t count, std::int64_t grain, const Body& body);

 private:
  void work(int index);
  void run_part(int index) noexcept;

  std::mutex caller_mutex_;  // one loop at a time
  std::mutex mutex_;
  std::condition_variable start_;
  std::condition_variable finished_;
  const Body* body_ = nullptr;
  std::int64_t count_ = 0;
  std::int64_t part_ = 0;
  std::uint64_t generation_ = 0;
  int running_ = 0;
  bool stopping_ = false;
  std::exception_ptr failure_;
  std::vector<std::thread> workers_;
};

}  // namespace tessera
