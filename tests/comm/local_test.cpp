// The conformance suite on local ranks.
#include <mutex>

#include <catch2/catch.hpp>

#include "comm/suite.hpp"

namespace ts = tessera;

namespace {

std::string run_suite(int ranks, const ts::WorldOptions& options) {
  std::mutex mutex;
  std::string wrong;
  ts::run_ranks(ranks, options, [&](ts::World& world) {
    const std::vector<std::string> failures = ts::comm_suite::run_all(world);
    const std::lock_guard lock(mutex);
    for (const std::string& failure : failures) wrong += failure + "\n";
  });
  return wrong;
}

ts::WorldOptions test_options() {
  ts::WorldOptions options;
  options.comm.timeout_s = 120.0;
  return options;
}

}  // namespace

TEST_CASE("local ranks pass the suite") {
  const int ranks = GENERATE(1, 2, 3, 4, 7);
  CAPTURE(ranks);
  CHECK(run_suite(ranks, test_options()) == "");
}

TEST_CASE("local ranks pass the suite through tiny windows") {
  ts::WorldOptions options = test_options();
  options.comm.window_bytes = 1;  // as small as it gets
  CHECK(run_suite(3, options) == "");
  options.comm.window_bytes = 10000;
  CHECK(run_suite(4, options) == "");
}

TEST_CASE("local ranks pass the suite with messages") {
  ts::WorldOptions options = test_options();
  options.force_point_to_point = true;
  const int ranks = GENERATE(2, 3, 5);
  CAPTURE(ranks);
  CHECK(run_suite(ranks, options) == "");
  options.comm.window_bytes = 1;
  if (ranks == 3) CHECK(run_suite(ranks, options) == "");
}
