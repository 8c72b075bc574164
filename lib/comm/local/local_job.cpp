#include "comm/local/local_job.hpp"

#include <numeric>
#include <thread>

#include "comm/message_transport.hpp"
#include "comm/solo_transport.hpp"
#include "comm/window_transport.hpp"

namespace tessera {

namespace {

constexpr std::chrono::microseconds kSpin{5};

class LocalCommunicator final : public GroupCommunicator {
 public:
  LocalCommunicator(std::shared_ptr<LocalJob> job, std::string key,
                    std::shared_ptr<LocalGroup> shared, GroupLinks links)
      : GroupCommunicator(std::move(links)),
        job_(std::move(job)),
        key_(std::move(key)),
        shared_(std::move(shared)) {}
  ~LocalCommunicator() override { shut_down(); }

  std::string_view backend() const override { return "local"; }

  static std::unique_ptr<Communicator> make(std::shared_ptr<LocalJob> job, std::string key,
                                            GroupInfo group, std::shared_ptr<CommThread> thread) {
    const int ranks = group.size();
    const CommOptions& options = job->options().comm;
    std::shared_ptr<LocalGroup> shared = job->group(key, ranks);
    GroupLinks links;
    links.group = std::make_unique<GroupInfo>(std::move(group));
    links.monitor = std::make_unique<Monitor>(std::move(thread), options.timeout_s);
    links.messenger = std::make_unique<LocalMessenger>(shared->office, links.group->rank);
    if (ranks == 1) {
      links.transport = std::make_unique<SoloTransport>();
    } else if (job->options().force_point_to_point) {
      links.transport = std::make_unique<MessageTransport>(*links.messenger, *links.group,
                                                           *links.monitor, options.window_bytes);
    } else {
      const bool crowded = job->ranks() > static_cast<int>(std::thread::hardware_concurrency());
      links.transport = std::make_unique<WindowTransport>(
          WindowLayout(shared->windows, ranks, options.window_bytes), *links.group, *links.monitor,
          crowded ? std::chrono::nanoseconds(0) : kSpin);
    }
    return std::make_unique<LocalCommunicator>(std::move(job), std::move(key), std::move(shared),
                                               std::move(links));
  }

 protected:
  std::unique_ptr<Communicator> make_child(GroupInfo group, std::span<const int>, int color,
                                           int) override {
    std::string key = key_ + "/" + std::to_string(++splits_) + ":" + std::to_string(color);
    return make(job_, std::move(key), std::move(group), links().monitor->shared_thread());
  }

 private:
  std::shared_ptr<LocalJob> job_;
  std::string key_;
  std::shared_ptr<LocalGroup> shared_;
  int splits_ = 0;
};

}  // namespace

LocalJob::LocalJob(int ranks, const WorldOptions& options)
    : ranks_(ranks), options_(options), board_(make_process_memory(BoardChannel::bytes(ranks))) {}

std::unique_ptr<BoardChannel> LocalJob::make_channel(int rank) const {
  return std::make_unique<BoardChannel>(board_, rank, ranks_);
}

std::shared_ptr<LocalGroup> LocalJob::group(const std::string& key, int ranks) {
  const std::lock_guard lock(mutex_);
  Forming& forming = groups_[key];
  if (forming.group == nullptr) {
    forming.group = std::make_shared<LocalGroup>();
    if (ranks > 1 && !options_.force_point_to_point) {
      forming.group->windows =
          make_process_memory(WindowLayout::bytes(ranks, options_.comm.window_bytes));
    }
    forming.group->office = std::make_shared<PostOffice>(ranks);
  }
  std::shared_ptr<LocalGroup> group = forming.group;
  if (++forming.joined == ranks) groups_.erase(key);
  return group;
}

std::unique_ptr<Communicator> make_local_communicator(std::shared_ptr<LocalJob> job, int rank) {
  GroupInfo group;
  group.rank = rank;
  group.world_ranks.resize(static_cast<std::size_t>(job->ranks()));
  std::iota(group.world_ranks.begin(), group.world_ranks.end(), 0);
  auto thread = std::make_shared<CommThread>(job->make_channel(rank));
  return LocalCommunicator::make(std::move(job), "world", std::move(group), std::move(thread));
}

}  // namespace tessera
