// Streams and events: the order of work on a device.
//
// A Stream runs its tasks one after another. On a CPU a stream is either *inline* (a task runs on
// the calling thread before enqueue() returns; the default) or a *worker* (its own thread; tests
// use it so that a missing wait is found as a race). Between streams, order exists only where an
// Event was recorded on one and waited for on the other.
#pragma once

#include <tessera/export.hpp>

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <string>

namespace tessera {

/// A point in a stream's order that is reached once. Cheap to copy; a default Event is reached.
class TESSERA_API Event {
 public:
  Event() = default;

  /// An event that is not reached yet, to be completed by complete() or fail().
  static Event pending();

  /// True when reached or failed; never blocks.
  bool ready() const;
  /// Blocks until reached. Rethrows the exception of the work that failed.
  void wait() const;
  /// As wait(), for at most `limit`; false when the time ran out.
  bool wait_for(std::chrono::nanoseconds limit) const;

  /// Marks the event as reached. Only the maker of a pending event calls this, once.
  void complete() const;
  /// Marks it as failed; waiters receive `cause`.
  void fail(std::exception_ptr cause) const;

 private:
  struct State;
  explicit Event(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

/// Whether CPU streams run tasks on the calling thread or on a thread of their own.
enum class StreamMode { kInline, kWorker };

/// A queue of tasks that run in order.
class TESSERA_API Stream {
 public:
  virtual ~Stream() = default;

  /// Appends a task. A task that throws fails the stream: later tasks are dropped, their events
  /// fail with the same exception, and synchronize() throws it.
  virtual void enqueue(std::function<void()> task) = 0;
  /// Later tasks of this stream start only after `event` is reached.
  virtual void wait(const Event& event) = 0;
  /// An event reached when everything enqueued so far is done.
  virtual Event record() = 0;
  /// Blocks until everything enqueued so far is done.
  virtual void synchronize() { record().wait(); }
};

}  // namespace tessera
