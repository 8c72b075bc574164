// Ranks that fail, stay away, or disagree, on local ranks with windows and with messages.
#include <tessera/error.hpp>
#include <tessera/world.hpp>

#include <atomic>
#include <chrono>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

#include "comm/failing.hpp"

namespace ts = tessera;
using namespace std::chrono_literals;
using Catch::Contains;

namespace {

struct Outcome {
  int code = 0;
  std::string message;
};

struct Result {
  std::vector<Outcome> ranks;  // what each rank's body raised
  double seconds = 0;
};

// Runs `body` on each rank and notes how each one ends.
Result run(int ranks, const ts::WorldOptions& options,
           const std::function<void(ts::World&)>& body) {
  Result result;
  result.ranks.resize(static_cast<std::size_t>(ranks));
  const auto start = std::chrono::steady_clock::now();
  try {
    ts::run_ranks(ranks, options, [&](ts::World& world) {
      Outcome& outcome = result.ranks[static_cast<std::size_t>(world.rank())];
      try {
        body(world);
      } catch (const ts::Error& error) {
        outcome = {static_cast<int>(error.code()), error.what()};
        throw;
      }
    });
  } catch (const ts::Error&) {
    // The outcomes say it all.
  }
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

ts::WorldOptions options_of(bool messages, double timeout_s = 60.0) {
  ts::WorldOptions options;
  options.force_point_to_point = messages;
  options.comm.timeout_s = timeout_s;
  return options;
}

}  // namespace

TEST_CASE("a rank that throws ends the others with its code and message") {
  const bool messages = GENERATE(false, true);
  const Result result = run(4, options_of(messages), ts::comm_failing::throw_on_last);
  CHECK(result.ranks[3].message == "tokens.bin is missing");
  for (int rank = 0; rank < 3; ++rank) {
    CHECK(result.ranks[rank].code == 3);
    CHECK(result.ranks[rank].message == "rank 3: tokens.bin is missing");
  }
  CHECK(result.seconds < 10.0);
}

TEST_CASE("a rank that stays away is named when the timeout runs out") {
  const bool messages = GENERATE(false, true);
  const Result result = run(3, options_of(messages, 0.5), ts::comm_failing::last_is_absent);
  for (const Outcome& outcome : result.ranks) {
    CHECK(outcome.code == 5);
    CHECK_THAT(outcome.message, Contains("all_reduce #2 \"token counts\"") &&
                                    Contains("group world of 3 ranks") &&
                                    Contains("no answer from rank 2 within 0.5 s"));
  }
}

TEST_CASE("a slow rank within the timeout is waited for") {
  const bool messages = GENERATE(false, true);
  const Result result = run(3, options_of(messages, 20.0), [](ts::World& world) {
    if (world.rank() == 1) std::this_thread::sleep_for(200ms);
    world.comm().barrier_blocking("slow");
  });
  for (const Outcome& outcome : result.ranks) CHECK(outcome.message == "");
}

TEST_CASE("a wait that may rightly be long has a limit of its own") {
  const bool messages = GENERATE(false, true);
  const Result result = run(2, options_of(messages, 0.2), [](ts::World& world) {
    const auto stream = world.device().make_stream("test");
    if (world.rank() == 0) std::this_thread::sleep_for(600ms);
    world.comm().barrier({*stream, {}, "save", 30.0}).wait();
    if (world.rank() == 0) std::this_thread::sleep_for(600ms);
    world.comm().barrier({*stream, {}, "ordinary"}).wait();
  });
  CHECK_THAT(result.ranks[1].message, Contains("\"ordinary\"") && Contains("within 0.2 s"));
}

TEST_CASE("different operations are named on all ranks, long before the timeout") {
  const bool messages = GENERATE(false, true);
  const Result result = run(3, options_of(messages), ts::comm_failing::different_operations);
  for (const Outcome& outcome : result.ranks) {
    CHECK(outcome.code == 2);
    CHECK_THAT(outcome.message, Contains("rank 0 is in all_gather #1 \"block 1\" of 4 fp32") &&
                                    Contains("rank 1 in reduce_scatter #1 \"block 2\" of 4 fp32"));
  }
  CHECK(result.seconds < 10.0);
}

TEST_CASE("different labels, sizes, types, roots and reductions are found") {
  const int what = GENERATE(0, 1, 2, 3, 4);
  const bool messages = GENERATE(false, true);
  const Result result = run(2, options_of(messages), [&](ts::World& world) {
    const bool odd = world.rank() == 1;
    const auto stream = world.device().make_stream("test");
    const auto pick = [&](int question, auto first, auto second) {
      return odd && what == question ? second : first;
    };
    const std::string label = std::string(70, 'l') + pick(0, "a", "b");
    const ts::Tensor data(world.device(), ts::Shape{pick(1, 4, 5)},
                          pick(2, ts::DType::kF32, ts::DType::kI32));
    const ts::CollectiveOrder order{*stream, {}, label};
    if (what == 3) {
      world.comm().broadcast(data, pick(3, 0, 1), order).wait();
    } else {
      world.comm()
          .all_reduce(data, data, pick(4, ts::ReduceOp::kSum, ts::ReduceOp::kMax), order)
          .wait();
    }
  });
  CAPTURE(what, messages);
  for (const Outcome& outcome : result.ranks) {
    CHECK(outcome.code == 2);
    CHECK_THAT(outcome.message, Contains("disagree"));
  }
}

TEST_CASE("counts of all_to_all_v that do not match are found") {
  const bool messages = GENERATE(false, true);
  const Result result = run(3, options_of(messages), ts::comm_failing::different_counts);
  for (const Outcome& outcome : result.ranks) {
    CHECK(outcome.code == 2);
    CHECK_THAT(outcome.message, Contains("rank 0 sends 3 elements to rank 2, which expects 2"));
  }
}

TEST_CASE("a message of another size than its receive is found") {
  const Result result = run(2, options_of(false), [](ts::World& world) {
    const auto stream = world.device().make_stream("test");
    const ts::Tensor data(world.device(), ts::Shape{3 + world.rank()}, ts::DType::kF32);
    if (world.rank() == 0) {
      world.comm().send(data, 1, {*stream, {}, "activations"}).wait();
    } else {
      world.comm().receive(data, 0, {*stream, {}, "activations"}).wait();
    }
  });
  CHECK(result.ranks[0].message == "");
  CHECK_THAT(result.ranks[1].message,
             Contains("rank 0 is in send #1 \"activations\" of 3 fp32, rank 1 in receive #1"));
}

TEST_CASE("after a failure every operation fails at once, in every group") {
  std::atomic<int> right = 0;
  const Result result = run(3, options_of(false, 0.3), [&](ts::World& world) {
    const auto part = world.comm().split(world.rank() == 2 ? 1 : 0, 0, "part");
    if (world.rank() == 2) std::this_thread::sleep_for(700ms);
    try {
      world.comm().barrier_blocking("late");
    } catch (const ts::Error&) {
      const auto start = std::chrono::steady_clock::now();
      try {
        part->barrier_blocking("after the failure");
      } catch (const ts::Error& error) {
        const bool names_first = error.message().find("\"late\"") != std::string::npos;
        if (names_first && std::chrono::steady_clock::now() - start < 250ms) ++right;
      }
      throw;
    }
  });
  CHECK(right == 3);
}

TEST_CASE("a failed input ends the operation with its own error") {
  const Result result = run(2, options_of(false), [](ts::World& world) {
    const auto stream = world.device().make_stream("test");
    const ts::Tensor data(world.device(), ts::Shape{4}, ts::DType::kF32);
    const ts::Event ready = ts::Event::pending();
    const ts::Event done =
        world.comm().all_reduce(data, data, ts::ReduceOp::kSum, {*stream, ready, "grads"});
    if (world.rank() == 1) {
      ready.fail(std::make_exception_ptr(ts::Error(ts::ErrorCode::kGuard, "a kernel failed")));
    } else {
      ready.complete();
    }
    done.wait();
  });
  CHECK(result.ranks[0].message == "rank 1: a kernel failed");
  CHECK(result.ranks[0].code == 6);
  CHECK(result.ranks[1].message == "a kernel failed");
}

TEST_CASE("a communicator may go while its peers never come") {
  // The body of rank 0 is unwound with operations under way, on tensors that go first.
  const Result result = run(2, options_of(false), [](ts::World& world) {
    const auto part = world.comm().split(0, world.rank(), "part");
    const auto stream = world.device().make_stream("test");
    ts::Event left;
    if (world.rank() == 0) {
      const ts::Tensor data(world.device(), ts::Shape{1000}, ts::DType::kF32);
      left = part->all_reduce(data, data, ts::ReduceOp::kSum, {*stream, {}, "left alone"});
      throw ts::Error(ts::ErrorCode::kData, "rank 0 gives up");
    }
    world.comm().barrier_blocking("never complete");
  });
  CHECK(result.ranks[0].message == "rank 0 gives up");
  CHECK(result.ranks[1].message == "rank 0: rank 0 gives up");
  CHECK(result.seconds < 10.0);
}

TEST_CASE("an event outlives its communicator") {
  std::atomic<int> reached = 0;
  ts::run_ranks(2, [&](ts::World& world) {
    ts::Event done;
    const auto stream = world.device().make_stream("test");
    {
      const auto part = world.comm().split(0, world.rank(), "short-lived");
      done = part->barrier({*stream, {}, "last"});
      done.wait();
    }
    if (done.ready()) ++reached;
    done.wait();
  });
  CHECK(reached == 2);
}

TEST_CASE("mistakes of the caller are refused before anything is sent") {
  const auto world = ts::World::single();
  const auto stream = world->device().make_stream("test");
  const ts::Tensor three(world->device(), ts::Shape{3}, ts::DType::kF32);
  const ts::Tensor four(world->device(), ts::Shape{4}, ts::DType::kF32);
  const ts::Tensor fp8(world->device(), ts::Shape{3}, ts::DType::kF8E4M3);
  const ts::CollectiveOrder order{*stream, {}, "wrong"};
  ts::Communicator& comm = world->comm();
  CHECK_THROWS_AS(comm.all_gather(three, four, order), ts::Error);
  CHECK_THROWS_AS(comm.all_reduce(fp8, fp8, ts::ReduceOp::kSum, order), ts::Error);
  CHECK_THROWS_AS(comm.broadcast(three, 1, order), ts::Error);
  CHECK_THROWS_AS(comm.send(three, -1, order), ts::Error);
  const std::int64_t too_many[] = {4};
  const std::int64_t fitting[] = {3};
  CHECK_THROWS_AS(comm.all_to_all_v(three, too_many, four, too_many, order), ts::Error);
  CHECK_THROWS_AS(comm.all_to_all_v(three, fitting, four, too_many, order).wait(), ts::Error);
}

TEST_CASE("no ranks, too few ranks") {
  CHECK_THROWS_AS(ts::run_ranks(0, [](ts::World&) {}), ts::Error);
}
