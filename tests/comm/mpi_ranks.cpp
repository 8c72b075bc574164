// A program to be run under mpirun: the conformance suite, and ranks that fail in several ways.
//   mpi_ranks SCENARIO [--messages] [--window BYTES] [--piece BYTES] [--timeout SECONDS]
#include <tessera/error.hpp>
#include <tessera/world.hpp>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <thread>

#include "comm/failing.hpp"
#include "comm/launch.hpp"
#include "comm/suite.hpp"

namespace ts = tessera;

namespace {

class StderrLogger final : public ts::Logger {
 public:
  void log(ts::LogLevel, std::string_view message) override {
    std::fprintf(stderr, "log: %.*s\n", static_cast<int>(message.size()), message.data());
  }
};

void suite(ts::World& world) {
  std::string wrong;
  for (const std::string& failure : ts::comm_suite::run_all(world)) wrong += failure + "\n";
  std::vector<std::string> all = world.comm().all_gather_bytes(wrong, "results");
  for (const std::string& text : all) {
    if (!text.empty()) throw ts::Error(ts::ErrorCode::kInternal, text);
  }
  if (world.rank() == 0) {
    std::printf("suite passed on %d ranks, %d threads each\n", world.size(),
                world.device().threads());
  }
}

void die(ts::World& world) {
  world.comm().barrier_blocking();
  if (world.rank() == world.size() - 1) std::raise(SIGKILL);
  world.comm().barrier_blocking("with a dead rank");
}

// One rank is busy and will not notice that another has failed.
void deaf(ts::World& world) {
  world.comm().barrier_blocking();
  if (world.rank() == 0) std::this_thread::sleep_for(std::chrono::seconds(60));
  throw ts::Error(ts::ErrorCode::kCheckpoint, "this one is damaged");
}

void same_error(ts::World& world) {
  world.comm().barrier_blocking();
  throw ts::Error(ts::ErrorCode::kUsage, "all ranks see this", "run.yaml:3: trainer");
}

void large(ts::World& world) {
  // Sums and copies beyond the piece size, with a look at the last element.
  const std::int64_t n = 3000017;
  const auto stream = world.device().make_stream("large");
  const ts::Tensor values(world.device(), ts::Shape{n}, ts::DType::kF32);
  for (std::int64_t i = 0; i < n; ++i) values.data<float>()[i] = static_cast<float>(i % 1000);
  world.comm().all_reduce(values, values, ts::ReduceOp::kSum, {*stream, {}, "large"}).wait();
  const float wanted = static_cast<float>((n - 1) % 1000 * world.size());
  if (values.data<float>()[n - 1] != wanted) {
    throw ts::Error(ts::ErrorCode::kInternal, "the last element is wrong");
  }
}

const std::map<std::string, void (*)(ts::World&)> kScenarios{
    {"suite", suite},
    {"large", large},
    {"nothing", [](ts::World&) {}},
    {"throw", ts::comm_failing::throw_on_last},
    {"absent", ts::comm_failing::last_is_absent},
    {"mismatch", ts::comm_failing::different_operations},
    {"counts", ts::comm_failing::different_counts},
    {"die", die},
    {"deaf", deaf},
    {"same_error", same_error},
};

}  // namespace

int main(int argc, char** argv) {
  ts::WorldOptions options;
  options.comm.timeout_s = 60.0;
  options.cpu.threads = 0;
  options.logger = std::make_shared<StderrLogger>();
  for (int i = 2; i < argc; ++i) {
    const std::string option = argv[i];
    if (option == "--messages") options.force_point_to_point = true;
    if (option == "--window") options.comm.window_bytes = std::atoll(argv[++i]);
    if (option == "--piece") options.message_bytes = std::atoll(argv[++i]);
    if (option == "--timeout") options.comm.timeout_s = std::atof(argv[++i]);
  }
  std::unique_ptr<ts::World> world;
  int code = 0;
  try {
    world = ts::make_mpi_world(&argc, &argv, options);
    kScenarios.at(argv[1])(*world);
    ts::finish_job(*world);
  } catch (...) {
    if (world == nullptr) {
      std::fprintf(stderr, "no world\n");
      return ts::exit_code_of(std::current_exception());
    }
    code = ts::end_job(*world, std::current_exception());
  }
  world.reset();
  return code;
}
