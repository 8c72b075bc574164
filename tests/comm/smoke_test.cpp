// The local backend in a few lines; tests/comm/suite.hpp checks every operation.
#include <tessera/error.hpp>
#include <tessera/world.hpp>

#include <atomic>

#include <catch2/catch.hpp>

namespace ts = tessera;

TEST_CASE("64 local ranks meet") {
  std::atomic<int> right = 0;
  ts::run_ranks(64, [&](ts::World& world) {
    std::int64_t values[2] = {world.rank(), 1};
    world.comm().all_reduce_values(values, ts::ReduceOp::kSum);
    const std::string root = world.comm().broadcast_bytes(world.rank() == 3 ? "three" : "", 3);
    if (values[0] == 64 * 63 / 2 && values[1] == 64 && root == "three") ++right;
  });
  CHECK(right == 64);
}

TEST_CASE("a world of one rank needs no peers") {
  const auto world = ts::World::single();
  std::int64_t value[1] = {7};
  world->comm().all_reduce_values(value, ts::ReduceOp::kSum);
  CHECK(value[0] == 7);
  CHECK(world->size() == 1);
  CHECK(world->comm().all_gather_bytes("x") == std::vector<std::string>{"x"});
}

TEST_CASE("the first cause of a failure is rethrown") {
  const auto failing = [](ts::World& world) {
    if (world.rank() == 2) throw ts::Error(ts::ErrorCode::kData, "no such file");
    world.comm().barrier_blocking("never complete");
  };
  try {
    ts::run_ranks(4, failing);
    FAIL("nothing was thrown");
  } catch (const ts::Error& error) {
    CHECK(error.code() == ts::ErrorCode::kData);
    CHECK(error.message() == "no such file");
  }
}
