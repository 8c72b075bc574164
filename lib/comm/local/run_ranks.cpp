#include <exception>
#include <thread>
#include <vector>

#include "base/check.hpp"
#include "comm/launch.hpp"
#include "comm/local/local_job.hpp"

namespace tessera {

std::unique_ptr<World> make_local_world(std::shared_ptr<LocalJob> job, int rank) {
  const WorldOptions& options = job->options();
  CpuOptions cpu = options.cpu;
  if (cpu.threads <= 0) cpu.threads = threads_per_local_rank(job->ranks());
  std::shared_ptr<Logger> logger = options.logger;
  std::unique_ptr<Device> device = make_cpu_device(cpu);
  return std::make_unique<World>(make_local_communicator(std::move(job), rank), std::move(device),
                                 std::move(logger));
}

void run_ranks(int ranks, const WorldOptions& options, const std::function<void(World&)>& body) {
  if (ranks < 1) fail(ErrorCode::kUsage, "{} ranks: at least 1 is needed", ranks);
  const auto job = std::make_shared<LocalJob>(ranks, options);
  std::vector<std::exception_ptr> failures(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  const auto run = [&](int rank) {
    try {
      const std::unique_ptr<World> world = make_local_world(job, rank);
      body(*world);
    } catch (...) {
      std::exception_ptr& failure = failures[static_cast<std::size_t>(rank)];
      failure = std::current_exception();
      job->make_channel(rank)->publish(cause_of(failure, rank));
    }
  };
  try {
    for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(run, rank);
  } catch (const std::exception& error) {
    job->make_channel(0)->publish({0, static_cast<int>(ErrorCode::kInternal), error.what()});
    for (std::thread& thread : threads) thread.join();
    fail(ErrorCode::kInternal, "cannot start {} ranks as threads: {}", ranks, error.what());
  }
  for (std::thread& thread : threads) thread.join();
  const std::optional<Cause> first = job->make_channel(0)->cause();
  if (first && failures[static_cast<std::size_t>(first->rank)]) {
    std::rethrow_exception(failures[static_cast<std::size_t>(first->rank)]);
  }
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

void run_ranks(int ranks, const std::function<void(World&)>& body) {
  run_ranks(ranks, WorldOptions{}, body);
}

}  // namespace tessera
