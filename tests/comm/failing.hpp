// Rank bodies that go wrong, shared by the tests of all backends.
#pragma once

#include <tessera/error.hpp>
#include <tessera/world.hpp>

#include <chrono>
#include <thread>

namespace tessera::comm_failing {

/// The last rank throws Error{kData}; the others are in, or come to, a barrier.
inline void throw_on_last(World& world) {
  world.comm().barrier_blocking("before");
  if (world.rank() == world.size() - 1) throw Error(ErrorCode::kData, "tokens.bin is missing");
  world.comm().barrier_blocking("after");
}

/// The last rank never enters the second operation; it stays away for longer than the timeout.
inline void last_is_absent(World& world) {
  world.comm().barrier_blocking("before");
  if (world.rank() == world.size() - 1) {
    for (int i = 0; i < 200; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }
  std::int64_t value[] = {1};
  world.comm().all_reduce_values(value, ReduceOp::kSum, "token counts");
}

/// Rank 0 gathers, the others reduce.
inline void different_operations(World& world) {
  const auto stream = world.device().make_stream("failing");
  const Tensor one(world.device(), Shape{4}, DType::kF32);
  const Tensor all(world.device(), Shape{4 * world.size()}, DType::kF32);
  if (world.rank() == 0) {
    world.comm().all_gather(one, all, {*stream, {}, "block 1"}).wait();
  } else {
    world.comm().reduce_scatter(all, one, ReduceOp::kSum, {*stream, {}, "block 2"}).wait();
  }
}

/// Rank 0 sends 3 elements to the last rank, which expects 2.
inline void different_counts(World& world) {
  const auto stream = world.device().make_stream("failing");
  const auto n = static_cast<std::size_t>(world.size());
  std::vector<std::int64_t> sends(n, 1);
  std::vector<std::int64_t> receives(n, 1);
  if (world.rank() == 0) sends[n - 1] = 3;
  if (world.rank() == world.size() - 1) receives[0] = 2;
  const Tensor in(world.device(), Shape{world.size() + 2}, DType::kF32);
  const Tensor out(world.device(), Shape{world.size() + 2}, DType::kF32);
  world.comm().all_to_all_v(in, sends, out, receives, {*stream, {}, "tokens"}).wait();
}

}  // namespace tessera::comm_failing
