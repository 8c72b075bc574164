#include <numeric>

#include <fmt/format.h>
#include <unistd.h>

#include "comm/group_communicator.hpp"
#include "comm/message_transport.hpp"
#include "comm/mpi/mpi_job.hpp"
#include "comm/mpi/mpi_messenger.hpp"
#include "comm/mpi/mpi_support.hpp"
#include "comm/solo_transport.hpp"
#include "comm/window_transport.hpp"

namespace tessera {

namespace {

constexpr std::chrono::microseconds kSpin{5};

class MpiCommunicator final : public GroupCommunicator {
 public:
  MpiCommunicator(MPI_Comm comm, std::shared_ptr<MpiJob> job, GroupLinks links)
      : GroupCommunicator(std::move(links)), comm_(comm), job_(std::move(job)) {}

  ~MpiCommunicator() override {
    // After a failure messages may be left over: then the communicator stays, finalising ends it.
    shut_down([this] {
      if (!job().cause()) MPI_Comm_free(&comm_);
    });
  }

  std::string_view backend() const override { return "mpi"; }

  /// Takes `comm` over. Collective over it; on the communication thread, or before that is used.
  /// `report`: this rank logs what the group has to say.
  static std::unique_ptr<Communicator> make(MPI_Comm comm, std::shared_ptr<MpiJob> job,
                                            GroupInfo info, std::shared_ptr<CommThread> thread,
                                            bool report) {
    const WorldOptions& options = job->options();
    const int ranks = info.size();
    GroupLinks links;
    links.owner = job;
    links.group = std::make_unique<GroupInfo>(std::move(info));
    links.monitor = std::make_unique<Monitor>(std::move(thread), options.comm.timeout_s);
    links.messenger = std::make_unique<MpiMessenger>(comm, options.message_bytes, job->crowded());
    links.transport = make_transport(comm, *job, links, ranks, report);
    return std::make_unique<MpiCommunicator>(comm, std::move(job), std::move(links));
  }

  void abandon(int exit_code) noexcept override {
    MPI_Abort(comm_, exit_code);
    _exit(exit_code);
  }

 protected:
  std::unique_ptr<Communicator> make_child(GroupInfo group, std::span<const int>, int color,
                                           int) override {
    std::unique_ptr<Communicator> child;
    const std::shared_ptr<CommThread>& thread = links().monitor->shared_thread();
    thread->call([&] {
      MPI_Comm comm = MPI_COMM_NULL;
      check_mpi(MPI_Comm_split(comm_, color, group.rank, &comm), "MPI_Comm_split");
      check_mpi(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
      const bool report = color == 0 && group.rank == 0;
      child = make(comm, job_, std::move(group), thread, report);
    });
    return child;
  }

 private:
  static std::unique_ptr<Transport> make_transport(MPI_Comm comm, const MpiJob& job,
                                                   const GroupLinks& links, int ranks,
                                                   bool report) {
    if (ranks == 1) return std::make_unique<SoloTransport>();
    const WorldOptions& options = job.options();
    const std::int64_t window_bytes = options.comm.window_bytes;
    if (!options.force_point_to_point) {
      std::string reason;
      auto memory = make_node_memory(comm, WindowLayout::bytes(ranks, window_bytes), reason);
      if (memory != nullptr) {
        return std::make_unique<WindowTransport>(
            WindowLayout(std::move(memory), ranks, window_bytes), *links.group, *links.monitor,
            job.crowded() ? std::chrono::nanoseconds(0) : kSpin);
      }
      if (report && options.logger != nullptr) {
        options.logger->warning(fmt::format("group {} of {} ranks exchanges messages: {}",
                                            links.group->name, ranks, reason));
      }
    }
    return std::make_unique<MessageTransport>(*links.messenger, *links.group, *links.monitor,
                                              window_bytes);
  }

  MPI_Comm comm_;
  std::shared_ptr<MpiJob> job_;
};

}  // namespace

std::unique_ptr<Communicator> make_mpi_communicator(std::shared_ptr<MpiJob> job) {
  const MPI_Comm comm = job->take_world();
  GroupInfo group;
  int ranks = 0;
  check_mpi(MPI_Comm_rank(comm, &group.rank), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(comm, &ranks), "MPI_Comm_size");
  group.world_ranks.resize(static_cast<std::size_t>(ranks));
  std::iota(group.world_ranks.begin(), group.world_ranks.end(), 0);
  auto thread = std::make_shared<CommThread>(job->channel());
  // Messages about the job arrive while no operation is under way, too.
  if (job->channel()->needs_progress()) thread->submit([] {});
  const bool report = group.rank == 0;
  return MpiCommunicator::make(comm, std::move(job), std::move(group), std::move(thread), report);
}

}  // namespace tessera
