#include "device/stream.hpp"

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "base/check.hpp"

namespace tessera {

struct Event::State {
  std::mutex mutex;
  std::condition_variable reached;
  bool done = false;
  std::exception_ptr cause;
};

Event Event::pending() { return Event(std::make_shared<State>()); }

bool Event::ready() const {
  if (!state_) return true;
  const std::lock_guard lock(state_->mutex);
  return state_->done;
}

void Event::wait() const {
  if (!state_) return;
  std::unique_lock lock(state_->mutex);
  state_->reached.wait(lock, [&] { return state_->done; });
  if (state_->cause) std::rethrow_exception(state_->cause);
}

bool Event::wait_for(std::chrono::nanoseconds limit) const {
  if (!state_) return true;
  std::unique_lock lock(state_->mutex);
  if (!state_->reached.wait_for(lock, limit, [&] { return state_->done; })) return false;
  if (state_->cause) std::rethrow_exception(state_->cause);
  return true;
}

void Event::complete() const { fail(nullptr); }

void Event::fail(std::exception_ptr cause) const {
  TESSERA_CHECK(state_ != nullptr, "only a pending event can be completed");
  {
    const std::lock_guard lock(state_->mutex);
    TESSERA_CHECK(!state_->done, "an event is completed once");
    state_->done = true;
    state_->cause = std::move(cause);
  }
  state_->reached.notify_all();
}

namespace {

class InlineStream final : public Stream {
 public:
  // An exception leaves through the caller: it is the caller's own thread that ran the task.
  void enqueue(std::function<void()> task) override { task(); }
  void wait(const Event& event) override { event.wait(); }
  Event record() override { return {}; }
};

class WorkerStream final : public Stream {
 public:
  WorkerStream() : thread_([this] { run(); }) {}

  ~WorkerStream() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    thread_.join();
  }

  void enqueue(std::function<void()> task) override {
    push(Item{std::move(task), {}, {}, Kind::kTask});
  }

  void wait(const Event& event) override {
    if (event.ready()) {
      event.wait();
      return;
    }
    push(Item{{}, event, {}, Kind::kWait});
  }

  Event record() override {
    Event reached = Event::pending();
    push(Item{{}, {}, reached, Kind::kRecord});
    return reached;
  }

 private:
  enum class Kind { kTask, kWait, kRecord };
  struct Item {
    std::function<void()> task;
    Event awaited;
    Event reached;
    Kind kind;
  };

  void push(Item item) {
    {
      const std::lock_guard lock(mutex_);
      items_.push_back(std::move(item));
    }
    wake_.notify_one();
  }

  void run() {
    for (;;) {
      Item item;
      {
        std::unique_lock lock(mutex_);
        wake_.wait(lock, [&] { return stopping_ || !items_.empty(); });
        if (items_.empty()) return;
        item = std::move(items_.front());
        items_.pop_front();
      }
      try {
        if (item.kind == Kind::kTask && !failure_) item.task();
        if (item.kind == Kind::kWait) item.awaited.wait();
      } catch (...) {
        if (!failure_) failure_ = std::current_exception();
      }
      // What a task holds (tensors) is let go before its event is reached.
      item.task = nullptr;
      if (item.kind == Kind::kRecord) item.reached.fail(failure_);
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Item> items_;
  bool stopping_ = false;
  std::exception_ptr failure_;  // used by the worker alone
  std::thread thread_;
};

}  // namespace

std::unique_ptr<Stream> make_cpu_stream(StreamMode mode) {
  if (mode == StreamMode::kWorker) return std::make_unique<WorkerStream>();
  return std::make_unique<InlineStream>();
}

}  // namespace tessera
