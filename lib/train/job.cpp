#include "train/job.hpp"

#include <tessera/run.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include <unistd.h>

#include "base/check.hpp"
#include "comm/launch.hpp"
#include "train/trainer.hpp"

namespace tessera {

namespace {

WorldOptions world_options(const Config& config) {
  WorldOptions options;
  options.comm = config.comm;
  options.cpu.threads = config.run.threads;
  return options;
}

void log_warnings(World& world, const Config& config) {
  if (world.rank() != 0) return;
  for (const std::string& warning : config.warnings) world.logger().warning(warning);
}

/// The body on one rank of a job of known size.
int run_rank(World& world, Config config, const JobBody& body) {
  resolve_for_ranks(config, world.size());
  world.set_logger(make_logger(world.rank()));
  log_warnings(world, config);
  return body(world, config);
}

int run_under_mpi(const RunArguments& arguments, const std::optional<Config>& config,
                  const std::exception_ptr& problem, const JobBody& body) {
  int argc = arguments.argc;
  char** argv = arguments.argv;
  std::unique_ptr<World> world;
  try {
    world = make_mpi_world(&argc, &argv, config ? world_options(*config) : WorldOptions{});
  } catch (const std::exception& error) {
    print_error(0, error.what());
    return exit_code_of(std::current_exception());
  }
  try {
    if (problem) std::rethrow_exception(problem);
    if (arguments.ranks > 0) {
      fail(ErrorCode::kUsage,
           "--ranks {} starts threads; under a launcher that started {} ranks "
           "leave it out",
           arguments.ranks, world->size());
    }
    const int code = run_rank(*world, *config, body);
    finish_job(*world);
    return code;
  } catch (...) {
    return end_job(*world, std::current_exception());
  }
}

/// Ends the process when some rank failed and another does not come back: threads cannot be ended
/// one by one.
class Straggler {
 public:
  explicit Straggler(int ranks) : running_(ranks) {}

  void rank_ended() {
    const std::lock_guard lock(mutex_);
    if (--running_ == 0) all_ended_.notify_all();
  }
  void rank_failed(const std::exception_ptr& failure) {
    const std::lock_guard lock(mutex_);
    if (std::exchange(failed_, true)) return;
    watch_ = std::thread([this, failure] { wait_for_others(failure); });
  }
  ~Straggler() {
    if (watch_.joinable()) watch_.join();
  }

 private:
  static constexpr std::chrono::seconds kGrace{5};

  void wait_for_others(const std::exception_ptr& failure) {
    std::unique_lock lock(mutex_);
    if (all_ended_.wait_for(lock, kGrace, [&] { return running_ == 0; })) return;
    try {
      std::rethrow_exception(failure);
    } catch (const std::exception& error) {
      print_error(0, error.what());
    }
    _exit(exit_code_of(failure));
  }

  std::mutex mutex_;
  std::condition_variable all_ended_;
  int running_;
  bool failed_ = false;
  std::thread watch_;
};

int run_in_process(const RunArguments& arguments, const Config& config, const JobBody& body) {
  std::atomic<int> code{0};
  const int ranks = std::max(1, arguments.ranks);
  Straggler straggler(ranks);
  run_ranks(ranks, world_options(config), [&](World& world) {
    try {
      const int own = run_rank(world, config, body);
      if (world.rank() == 0) code = own;
    } catch (...) {
      straggler.rank_failed(std::current_exception());
      straggler.rank_ended();
      throw;
    }
    straggler.rank_ended();
  });
  return code;
}

}  // namespace

int run_job(const RunArguments& arguments, const JobBody& body) {
  std::optional<Config> config;
  std::exception_ptr problem;
  try {
    config = load_config(arguments.config_path, arguments.overrides);
  } catch (...) {
    problem = std::current_exception();
  }
  const bool wants_mpi = config && config->comm.backend == "mpi";
  const bool refuses_mpi = config && config->comm.backend == "local";
  if (wants_mpi || (launched_by_mpi() && !refuses_mpi && arguments.ranks == 0)) {
    return run_under_mpi(arguments, config, problem, body);
  }
  try {
    if (problem) std::rethrow_exception(problem);
    if (const auto launcher = detect_launcher(); launcher && launcher->size > 1) {
      fail(ErrorCode::kUsage,
           "{} started {} processes, but {} would make each of them a job of its own",
           launcher->launcher, launcher->size,
           arguments.ranks > 0 ? "--ranks" : "comm.backend: local");
    }
    return run_in_process(arguments, *config, body);
  } catch (const std::exception& error) {
    print_error(0, error.what());
    return exit_code_of(std::current_exception());
  }
}

int train(const RunArguments& arguments) {
  return run_job(arguments, [&](World& world, const Config& config) {
    return train_on_rank(world, config, arguments.resume);
  });
}

int evaluate(const RunArguments& arguments, const std::string& checkpoint) {
  return run_job(arguments, [&](World& world, const Config& config) {
    return evaluate_on_rank(world, config, checkpoint);
  });
}

int run(int argc, char** argv, const std::function<void(World&, const Config&)>& body) {
  RunArguments arguments;
  arguments.argc = argc;
  arguments.argv = argv;
  std::string problem;
  for (int i = 1; i < argc && problem.empty(); ++i) {
    const std::string word = argv[i];
    const bool takes_value = word == "--set" || word == "--ranks";
    if (takes_value && i + 1 == argc) {
      problem = word + " needs a value";
    } else if (word == "--set") {
      arguments.overrides.emplace_back(argv[++i]);
    } else if (word == "--ranks") {
      const std::string count = argv[++i];
      const bool digits = !count.empty() && count.size() < 6 &&
                          count.find_first_not_of("0123456789") == std::string::npos;
      arguments.ranks = digits ? std::stoi(count) : 0;
      if (arguments.ranks < 1) problem = "--ranks needs a positive number, not '" + count + "'";
    } else if (word.starts_with("-") || !arguments.config_path.empty()) {
      problem = "unexpected argument '" + word + "'";
    } else {
      arguments.config_path = word;
    }
  }
  if (problem.empty() && arguments.config_path.empty()) problem = "no configuration file";
  if (!problem.empty()) {
    print_error(0, problem + "; usage: " + std::string(argc > 0 ? argv[0] : "program") +
                       " CONFIG [--set key.path=value]... [--ranks N]");
    return static_cast<int>(ErrorCode::kUsage);
  }
  return run_job(arguments, [&](World& world, const Config& config) {
    body(world, config);
    return 0;
  });
}

}  // namespace tessera
