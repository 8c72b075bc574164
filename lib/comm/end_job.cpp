// The ends of a job (docs in comm/launch.hpp).
#include <chrono>
#include <functional>
#include <string>
#include <thread>

#include "comm/group_communicator.hpp"
#include "comm/launch.hpp"

namespace tessera {

namespace {

// How long a failed rank waits for the others to fail too.
constexpr std::chrono::seconds kOthersFail{2};
// Who has printed ends the job by force a little later, who has not leaves the others time to
// print.
constexpr std::chrono::milliseconds kAfterPrinting{50};
constexpr std::chrono::milliseconds kOthersPrint{300};
constexpr std::chrono::milliseconds kPoll{1};
// The hash of a rank that has nothing of its own to print.
constexpr std::uint64_t kNothing = 0;

bool all_ended(JobChannel& job) {
  for (int rank = 0; rank < job.size(); ++rank) {
    if (!job.end_of(rank)) return false;
  }
  return true;
}

// True when this rank's message is another's, received.
bool is_received(const Cause& cause, int rank, std::string_view message) {
  return cause.rank != rank && !cause.message.empty() && message != cause.message &&
         message.find(cause.message) != std::string_view::npos;
}

bool is_first_with(JobChannel& job, std::uint64_t hash) {
  for (int rank = 0; rank < job.rank(); ++rank) {
    if (job.end_of(rank) == hash) return false;
  }
  return true;
}

}  // namespace

void finish_job(World& world) { world.comm().barrier_blocking("end of the job"); }

int end_job(World& world, int code, std::string_view message) {
  auto* const group = dynamic_cast<GroupCommunicator*>(&world.comm());
  if (group == nullptr) {
    print_error(world.rank(), message);
    return code;
  }
  JobChannel& job = group->job();
  const int rank = job.rank();
  job.publish({rank, code, std::string(message)});
  const Cause cause = job.cause().value_or(Cause{rank, code, std::string(message)});
  const std::uint64_t hash =
      is_received(cause, rank, message) ? kNothing : std::hash<std::string_view>()(message) | 1;
  job.publish_end(hash);
  if (group->backend() != "local") {
    // The communication thread moves the job's messages when it is idle; make sure that it runs.
    const auto deadline = std::chrono::steady_clock::now() + kOthersFail;
    while (!all_ended(job) && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(kPoll);
    }
  }
  const bool prints = hash != kNothing && is_first_with(job, hash);
  if (prints) print_error(rank, message);
  const int exit_code = cause.code == 0 ? 1 : cause.code;
  if (group->backend() != "local" && !all_ended(job)) {
    std::this_thread::sleep_for(prints ? kAfterPrinting : kOthersPrint);
    group->abandon(exit_code);
  }
  return exit_code;
}

int end_job(World& world, const std::exception_ptr& failure) {
  const Cause cause = cause_of(failure, world.rank());
  return end_job(world, cause.code, cause.message);
}

int exit_code_of(const std::exception_ptr& failure) { return cause_of(failure, 0).code; }

}  // namespace tessera
