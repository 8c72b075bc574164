// The communication thread of a rank: the only one that moves data, and the only caller of MPI.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "comm/job.hpp"

namespace tessera {

/// Runs tasks in the order of submit(). A rank's communicator and all its splits share one. The
/// thread starts with the first task.
class CommThread {
 public:
  explicit CommThread(std::shared_ptr<JobChannel> job) : job_(std::move(job)) {}
  ~CommThread();
  CommThread(const CommThread&) = delete;
  CommThread& operator=(const CommThread&) = delete;

  JobChannel& job() const { return *job_; }

  /// Appends a task that does not throw.
  void submit(std::function<void()> task);
  /// Runs `task` on the thread after all earlier tasks; returns or throws what it does.
  void call(const std::function<void()>& task);

  /// Background work, asked now and then from within the thread until it returns true (finished):
  /// sends on their way. Only from tasks of the thread.
  void add_background(std::function<bool()> work) { background_.push_back(std::move(work)); }
  /// Moves background work and the job's messages on. Only from tasks of the thread.
  void progress();
  /// The longest that a wait inside the thread may sleep before it calls progress() again.
  std::chrono::nanoseconds slice() const;

 private:
  void run();

  std::shared_ptr<JobChannel> job_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> tasks_;
  bool stopping_ = false;
  std::vector<std::function<bool()>> background_;  // used by the thread alone
  std::thread thread_;
};

/// What every wait of a group consults: the job's fate, the group's, and the timeout.
class Monitor {
 public:
  Monitor(std::shared_ptr<CommThread> thread, double timeout_s)
      : thread_(std::move(thread)), timeout_s_(timeout_s), current_timeout_s_(timeout_s) {}

  CommThread& thread() const { return *thread_; }
  const std::shared_ptr<CommThread>& shared_thread() const { return thread_; }
  /// The timeout of the current operation.
  double timeout_s() const { return current_timeout_s_; }
  /// Another timeout for the operation that begins; 0 = the group's own. Only on the thread.
  void use_timeout(double seconds) { current_timeout_s_ = seconds > 0 ? seconds : timeout_s_; }
  std::chrono::steady_clock::time_point deadline() const;

  /// Moves background work on; raises AbortedError when the job ends, Error{kInternal} when the
  /// group is being destroyed.
  void check() const;
  std::chrono::nanoseconds slice() const { return thread_->slice(); }
  /// Lets every wait of the group end soon.
  void close() { closing_.store(true); }
  bool closing() const { return closing_.load(); }

 private:
  std::shared_ptr<CommThread> thread_;
  double timeout_s_;
  double current_timeout_s_;
  std::atomic<bool> closing_{false};
};

}  // namespace tessera
