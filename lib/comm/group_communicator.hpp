// What the communicators of all CPU backends have in common: checks, the order of operations, their
// events, failure.
#pragma once

#include <tessera/comm.hpp>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "comm/comm_thread.hpp"
#include "comm/transport.hpp"

namespace tessera {

/// How a group is connected. `group` and `monitor` outlive the other two, which refer to them.
struct GroupLinks {
  std::shared_ptr<void> owner;  ///< destroyed last
  std::unique_ptr<GroupInfo> group;
  std::unique_ptr<Monitor> monitor;
  std::unique_ptr<Messenger> messenger;
  std::unique_ptr<Transport> transport;
};

/// Turns operations into tasks of the rank's communication thread. An operation that fails ends the
/// whole job: the cause is published, and every later operation of every rank fails with it.
class GroupCommunicator : public Communicator {
 public:
  explicit GroupCommunicator(GroupLinks links);

  int rank() const override { return links_.group->rank; }
  int size() const override { return links_.group->size(); }
  const std::string& name() const override { return links_.group->name; }

  Event all_gather(const Tensor& input, const Tensor& output, CollectiveOrder order) override;
  Event reduce_scatter(const Tensor& input, const Tensor& output, ReduceOp op,
                       CollectiveOrder order) override;
  Event all_reduce(const Tensor& input, const Tensor& output, ReduceOp op,
                   CollectiveOrder order) override;
  Event all_to_all(const Tensor& input, const Tensor& output, CollectiveOrder order) override;
  Event all_to_all_v(const Tensor& input, std::span<const std::int64_t> send_counts,
                     const Tensor& output, std::span<const std::int64_t> receive_counts,
                     CollectiveOrder order) override;
  Event broadcast(const Tensor& data, int root, CollectiveOrder order) override;
  Event send(const Tensor& data, int destination, CollectiveOrder order) override;
  Event receive(const Tensor& data, int source, CollectiveOrder order) override;
  Event barrier(CollectiveOrder order) override;
  std::unique_ptr<Communicator> split(int color, int key, std::string name) override;
  void abort(int exit_code, std::string_view cause) noexcept override;

  /// Ends all processes of the job by force with `exit_code`, where the backend can; else nothing.
  virtual void abandon(int exit_code) noexcept;
  /// What the ranks of the job share.
  JobChannel& job() const { return links_.monitor->thread().job(); }

 protected:
  /// Makes the communicator of `members` (ranks of this group, in their new order; this rank is
  /// `rank` among them). Every rank calls it at once; `color` counts the new groups from 0.
  virtual std::unique_ptr<Communicator> make_child(GroupInfo group, std::span<const int> members,
                                                   int color, int colors) = 0;
  const GroupLinks& links() const { return links_; }
  /// For destructors: ends what is still going on, then runs `release` on the thread.
  void shut_down(const std::function<void()>& release = {}) noexcept;

 private:
  using Body = std::function<void(const OperationInfo&)>;

  OperationInfo make_info(OperationKind kind, DType dtype, std::int64_t elements,
                          const CollectiveOrder& order) const;
  Event submit_collective(OperationInfo info, const Event& ready, Body body);
  Event submit(const OperationInfo& info, const Event& ready, Body body);
  void run(const OperationInfo& info, const Event& ready, const Body& body);
  void keep_failed(const Event& event);
  void publish_failure(const std::exception_ptr& failure) noexcept;
  void check_peer(int peer, std::string_view operation) const;
  void send_now(const OperationInfo& info, const std::byte* data, std::size_t bytes,
                int destination);
  void receive_now(const OperationInfo& info, std::byte* data, std::size_t bytes, int source);

  GroupLinks links_;
  std::uint64_t sequence_ = 0;
  std::vector<std::uint64_t> sends_;  // by peer
  std::vector<std::uint64_t> receives_;
  std::atomic<int> in_flight_{0};
  // Failed operations, so that their exceptions end on the rank's own thread: the reference count
  // of an exception lies in the C++ runtime, where ThreadSanitizer does not see it.
  std::mutex failed_mutex_;
  std::vector<Event> failed_;
  std::atomic<int> sends_in_flight_{0};
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // used by the thread alone
};

}  // namespace tessera
