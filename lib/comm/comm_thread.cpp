#include "comm/comm_thread.hpp"

#include <tessera/stream.hpp>

#include <algorithm>
#include <exception>

#include "base/check.hpp"

namespace tessera {

namespace {

// How soon a sleeping rank notices a failure elsewhere, and moves messages that need its help.
constexpr std::chrono::milliseconds kQuietSlice{20};
constexpr std::chrono::microseconds kBusySlice{100};
// Waits beyond this are as good as for ever, and adding more would overflow the clock.
constexpr double kLongestTimeout_s = 1e8;

}  // namespace

CommThread::~CommThread() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void CommThread::submit(std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
    tasks_.push_back(std::move(task));
  }
  wake_.notify_one();
}

void CommThread::call(const std::function<void()>& task) {
  const Event done = Event::pending();
  submit([&task, done] {
    try {
      task();
    } catch (...) {
      done.fail(std::current_exception());
      return;
    }
    done.complete();
  });
  done.wait();
}

void CommThread::progress() {
  job_->progress();
  std::erase_if(background_, [](const std::function<bool()>& work) { return work(); });
}

std::chrono::nanoseconds CommThread::slice() const {
  if (background_.empty()) return kQuietSlice;
  return kBusySlice;
}

void CommThread::run() {
  for (;;) {
    std::function<void()> task;
    {
      std::unique_lock lock(mutex_);
      const auto pending = [&] { return stopping_ || !tasks_.empty(); };
      while (!pending()) {
        if (background_.empty() && !job_->needs_progress()) {
          wake_.wait(lock, pending);
        } else if (!wake_.wait_for(lock, slice(), pending)) {
          lock.unlock();
          try {
            progress();
          } catch (...) {
            // No operation is under way to tell: the next one will.
            job_->publish(cause_of(std::current_exception(), job_->rank()));
            background_.clear();
          }
          lock.lock();
        }
      }
      if (tasks_.empty()) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
  }
}

std::chrono::steady_clock::time_point Monitor::deadline() const {
  return std::chrono::steady_clock::now() +
         std::chrono::duration_cast<std::chrono::steady_clock::duration>(
             std::chrono::duration<double>(std::min(current_timeout_s_, kLongestTimeout_s)));
}

void Monitor::check() const {
  thread_->progress();
  if (const std::optional<Cause> cause = thread_->job().cause()) throw AbortedError(*cause);
  if (closing()) fail(ErrorCode::kInternal, "a communicator was destroyed during an operation");
}

}  // namespace tessera
