// The conformance suite of communicators: one body for every backend. It runs inside ranks, so it
// makes no assertions: each rank returns what it found wrong, as text.
#pragma once

#include <tessera/world.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "base/half.hpp"

namespace tessera::comm_suite {

inline constexpr DType kAllTypes[] = {DType::kF32,    DType::kF64,    DType::kBF16, DType::kF16,
                                      DType::kF8E4M3, DType::kF8E5M2, DType::kI8,   DType::kU8,
                                      DType::kI32,    DType::kI64};
inline constexpr DType kReducible[] = {DType::kF32, DType::kF64, DType::kBF16, DType::kF16,
                                       DType::kI8,  DType::kU8,  DType::kI32,  DType::kI64};
inline constexpr std::int64_t kSizes[] = {0, 1, 10, 1000, 10007};

/// Checks one communicator.
class Checker {
 public:
  Checker(World& world, Communicator& comm)
      : comm_(comm), device_(world.device()), stream_(device_.make_stream("suite")) {}

  const std::vector<std::string>& failures() const { return failures_; }

  void run() {
    for (const DType dtype : kAllTypes) {
      for (const std::int64_t size : kSizes) move_data(dtype, size);
    }
    for (const DType dtype : kReducible) {
      for (const std::int64_t size : kSizes) reduce_exactly(dtype, size);
    }
    for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kF16}) {
      for (const std::int64_t size : {std::int64_t{1}, std::int64_t{777}, std::int64_t{20011}}) {
        reduce_along_tree(dtype, size);
      }
      extremes_keep_nan(dtype);
    }
    half_precision_does_not_overflow();
    uneven_exchange();
    ring();
    late_input();
    host_values();
  }

 private:
  void expect(bool good, const std::string& what) {
    if (good || failures_.size() >= 20) return;
    failures_.push_back(fmt::format("{} {} rank {} of {}: {}", comm_.backend(), comm_.name(),
                                    comm_.rank(), comm_.size(), what));
  }

  Tensor make(std::int64_t elements, DType dtype) {
    return Tensor(device_, Shape{elements}, dtype, MemoryTag::kComm);
  }
  CollectiveOrder order(std::string_view label = "suite") { return {*stream_, {}, label}; }

  // Small integers, exact in every type and under sums over a few ranks.
  static int small_value(int rank, std::int64_t i) {
    return static_cast<int>((rank * 7 + i * 3) % 11);
  }

  static void store(std::byte* at, DType dtype, double value) {
    const auto put = [&](auto typed) { std::memcpy(at, &typed, sizeof(typed)); };
    switch (dtype) {
      case DType::kF32: return put(static_cast<float>(value));
      case DType::kF64: return put(value);
      case DType::kBF16: return put(BF16(static_cast<float>(value)));
      case DType::kF16: return put(F16(static_cast<float>(value)));
      case DType::kI32: return put(static_cast<std::int32_t>(value));
      case DType::kI64: return put(static_cast<std::int64_t>(value));
      default: return put(static_cast<std::uint8_t>(value));
    }
  }

  void fill(const Tensor& tensor, int rank, std::int64_t from = 0) {
    const std::size_t size = size_of(tensor.dtype());
    auto* const data = static_cast<std::byte*>(tensor.raw_data());
    for (std::int64_t i = 0; i < tensor.elements(); ++i) {
      store(data + static_cast<std::size_t>(i) * size, tensor.dtype(), small_value(rank, from + i));
    }
  }

  // Compares with small_value(rank, from + i).
  void expect_values(const Tensor& tensor, int rank, std::int64_t from, const std::string& what) {
    const Tensor wanted = make(tensor.elements(), tensor.dtype());
    fill(wanted, rank, from);
    expect_equal(tensor, wanted, what);
  }

  void expect_equal(const Tensor& tensor, const Tensor& wanted, const std::string& what) {
    if (tensor.bytes() == 0) return;
    expect(std::memcmp(tensor.raw_data(), wanted.raw_data(), tensor.bytes()) == 0,
           fmt::format("{} of {} {} is wrong", what, tensor.elements(), to_string(tensor.dtype())));
  }

  void move_data(DType dtype, std::int64_t n) {
    const int ranks = comm_.size();
    const int rank = comm_.rank();
    const Tensor input = make(n, dtype);
    fill(input, rank);
    const Tensor gathered = make(n * ranks, dtype);
    comm_.all_gather(input, gathered, order()).wait();
    for (int r = 0; r < ranks; ++r) {
      expect_values(gathered.flat_slice(r * n, n), r, 0, "all_gather");
    }

    const Tensor in_place = make(n * ranks, dtype);
    fill(in_place.flat_slice(rank * n, n), rank, 5);
    comm_.all_gather(in_place.flat_slice(rank * n, n), in_place, order()).wait();
    for (int r = 0; r < ranks; ++r) {
      expect_values(in_place.flat_slice(r * n, n), r, 5, "all_gather in place");
    }

    const Tensor parts = make(n * ranks, dtype);
    for (int r = 0; r < ranks; ++r) fill(parts.flat_slice(r * n, n), rank, 100 * r);
    const Tensor exchanged = make(n * ranks, dtype);
    comm_.all_to_all(parts, exchanged, order()).wait();
    for (int r = 0; r < ranks; ++r) {
      expect_values(exchanged.flat_slice(r * n, n), r, 100 * rank, "all_to_all");
    }

    for (int root = 0; root < ranks; ++root) {
      const Tensor data = make(n, dtype);
      fill(data, rank == root ? root + 3 : 50);
      comm_.broadcast(data, root, order()).wait();
      expect_values(data, root + 3, 0, "broadcast");
    }
    comm_.barrier(order()).wait();
  }

  void reduce_exactly(DType dtype, std::int64_t n) {
    const int ranks = comm_.size();
    const int rank = comm_.rank();
    const Tensor wanted = make(n * ranks, dtype);
    const Tensor largest = make(n * ranks, dtype);
    const Tensor smallest = make(n * ranks, dtype);
    const std::size_t size = size_of(dtype);
    const auto element = [&](const Tensor& tensor, std::int64_t i) {
      return static_cast<std::byte*>(tensor.raw_data()) + static_cast<std::size_t>(i) * size;
    };
    for (std::int64_t i = 0; i < n * ranks; ++i) {
      int sum = 0;
      int most = 0;
      int least = 100;
      for (int r = 0; r < ranks; ++r) {
        sum += small_value(r, i);
        most = std::max(most, small_value(r, i));
        least = std::min(least, small_value(r, i));
      }
      store(element(wanted, i), dtype, sum);
      store(element(largest, i), dtype, most);
      store(element(smallest, i), dtype, least);
    }
    const auto check_op = [&](ReduceOp op, const Tensor& expected, const std::string& name) {
      const Tensor input = make(n * ranks, dtype);
      fill(input, rank);
      const Tensor output = make(n * ranks, dtype);
      comm_.all_reduce(input, output, op, order()).wait();
      expect_equal(output, expected, "all_reduce " + name);
      comm_.all_reduce(input, input, op, order()).wait();
      expect_equal(input, expected, "all_reduce in place " + name);

      fill(input, rank);
      const Tensor mine = expected.flat_slice(rank * n, n);
      const Tensor part = make(n, dtype);
      comm_.reduce_scatter(input, part, op, order()).wait();
      expect_equal(part, mine, "reduce_scatter " + name);
      comm_.reduce_scatter(input, input.flat_slice(rank * n, n), op, order()).wait();
      expect_equal(input.flat_slice(rank * n, n), mine, "reduce_scatter in place " + name);
    };
    check_op(ReduceOp::kSum, wanted, "sum");
    check_op(ReduceOp::kMax, largest, "max");
    check_op(ReduceOp::kMin, smallest, "min");
  }

  // Values whose sum depends on its order, from a small generator of our own.
  static double rough_value(int rank, std::int64_t i) {
    auto x = static_cast<std::uint64_t>(i * 1009 + rank + 1) * 0x9e3779b97f4a7c15u;
    x ^= x >> 29;
    x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 32;
    const double unit = static_cast<double>(x >> 11) * 0x1p-53 - 0.5;
    return std::ldexp(unit, static_cast<int>(x % 9));
  }

  static double load(const std::byte* at, DType dtype) {
    const auto get = [&](auto typed) {
      std::memcpy(&typed, at, sizeof(typed));
      return typed;
    };
    switch (dtype) {
      case DType::kF32: return get(float{});
      case DType::kBF16: return static_cast<float>(get(BF16{}));
      case DType::kF16: return static_cast<float>(get(F16{}));
      default: return get(double{});
    }
  }

  // The definition, word for word: pair neighbours level by level, an odd one out passes up.
  template <typename T>
  static double tree_sum(std::vector<T> values) {
    while (values.size() > 1) {
      std::vector<T> next;
      for (std::size_t i = 0; i + 1 < values.size(); i += 2) {
        next.push_back(values[i] + values[i + 1]);
      }
      if (values.size() % 2 == 1) next.push_back(values.back());
      values = std::move(next);
    }
    return static_cast<double>(values[0]);
  }

  void reduce_along_tree(DType dtype, std::int64_t n) {
    const int ranks = comm_.size();
    const int rank = comm_.rank();
    const std::size_t size = size_of(dtype);
    const Tensor input = make(n * ranks, dtype);
    const Tensor wanted = make(n * ranks, dtype);
    auto* const data = static_cast<std::byte*>(input.raw_data());
    auto* const sums = static_cast<std::byte*>(wanted.raw_data());
    for (std::int64_t i = 0; i < n * ranks; ++i) {
      std::byte* const at = sums + static_cast<std::size_t>(i) * size;
      std::vector<float> singles;
      std::vector<double> doubles;
      for (int r = 0; r < ranks; ++r) {
        store(at, dtype, rough_value(r, i));
        doubles.push_back(load(at, dtype));
        singles.push_back(static_cast<float>(doubles.back()));
      }
      store(at, dtype, dtype == DType::kF64 ? tree_sum(doubles) : tree_sum(singles));
      store(data + static_cast<std::size_t>(i) * size, dtype, rough_value(rank, i));
    }
    const Tensor output = make(n * ranks, dtype);
    comm_.all_reduce(input, output, ReduceOp::kSum, order()).wait();
    expect_equal(output, wanted, "order of the sum in all_reduce");
    const Tensor part = make(n, dtype);
    comm_.reduce_scatter(input, part, ReduceOp::kSum, order()).wait();
    expect_equal(part, wanted.flat_slice(rank * n, n), "order of the sum in reduce_scatter");
  }

  void extremes_keep_nan(DType dtype) {
    const int last = comm_.size() - 1;
    for (const ReduceOp op : {ReduceOp::kMax, ReduceOp::kMin}) {
      const Tensor data = make(3, dtype);
      auto* const at = static_cast<std::byte*>(data.raw_data());
      const std::size_t size = size_of(dtype);
      store(at, dtype, comm_.rank() == 0 ? std::numeric_limits<double>::quiet_NaN() : 1.0);
      store(at + size, dtype,
            comm_.rank() == last ? std::numeric_limits<double>::quiet_NaN() : 1.0);
      store(at + 2 * size, dtype, 1.0);
      comm_.all_reduce(data, data, op, order()).wait();
      expect(std::isnan(load(at, dtype)) && std::isnan(load(at + size, dtype)) &&
                 load(at + 2 * size, dtype) == 1.0,
             fmt::format("NaN is lost in {} {}", op == ReduceOp::kMax ? "max" : "min",
                         to_string(dtype)));
    }
  }

  // Partial sums leave the range of FP16, the result does not.
  void half_precision_does_not_overflow() {
    const int ranks = comm_.size();
    const Tensor data = make(100, DType::kF16);
    const double mine = comm_.rank() * 2 < ranks ? 60000.0 : -60000.0;
    for (std::int64_t i = 0; i < 100; ++i) {
      store(static_cast<std::byte*>(data.raw_data()) + i * 2, DType::kF16, mine);
    }
    comm_.all_reduce(data, data, ReduceOp::kSum, order()).wait();
    const double sum = load(static_cast<std::byte*>(data.raw_data()), DType::kF16);
    const double wanted = ranks % 2 == 0 ? 0.0 : 60000.0;
    expect(std::abs(sum - wanted) < 40.0, fmt::format("FP16 sum is {}", sum));
  }

  void uneven_exchange() {
    const int ranks = comm_.size();
    const int rank = comm_.rank();
    for (const int scale : {0, 1, 997}) {
      const auto count = [&](int from, int to) -> std::int64_t {
        return scale * ((from * 3 + to * 5) % 4);
      };
      std::vector<std::int64_t> sends;
      std::vector<std::int64_t> receives;
      std::int64_t sent = 0;
      std::int64_t received = 0;
      for (int r = 0; r < ranks; ++r) {
        sends.push_back(count(rank, r));
        receives.push_back(count(r, rank));
        sent += sends.back();
        received += receives.back();
      }
      const Tensor input = make(sent, DType::kF32);
      const Tensor output = make(received, DType::kF32);
      std::int64_t begin = 0;
      for (int r = 0; r < ranks; ++r) {
        const auto n = sends[static_cast<std::size_t>(r)];
        fill(input.flat_slice(begin, n), rank, 10 * r);
        begin += n;
      }
      comm_.all_to_all_v(input, sends, output, receives, order()).wait();
      begin = 0;
      for (int r = 0; r < ranks; ++r) {
        const auto n = receives[static_cast<std::size_t>(r)];
        expect_values(output.flat_slice(begin, n), r, 10 * rank, "all_to_all_v");
        begin += n;
      }
    }
  }

  // Everybody sends first: a send must not wait for its receive.
  void ring() {
    const int ranks = comm_.size();
    const int next = (comm_.rank() + 1) % ranks;
    const int previous = (comm_.rank() + ranks - 1) % ranks;
    for (const std::int64_t n : {std::int64_t{0}, std::int64_t{3}, std::int64_t{300000}}) {
      const Tensor out = make(n, DType::kI32);
      const Tensor in = make(n, DType::kI32);
      fill(out, comm_.rank());
      const Event sent = comm_.send(out, next, order("ring"));
      comm_.receive(in, previous, order("ring")).wait();
      sent.wait();
      expect_values(in, previous, 0, "send and receive");
    }
  }

  // An operation starts when its input is ready, not before.
  void late_input() {
    const Tensor input = make(10, DType::kI32);
    const Tensor output = make(10 * comm_.size(), DType::kI32);
    const Event ready = Event::pending();
    const Event done = comm_.all_gather(input, output, {*stream_, ready, "late"});
    std::this_thread::sleep_for(std::chrono::milliseconds(2 * comm_.rank()));
    expect(!done.ready(), "all_gather did not wait for its input");
    fill(input, comm_.rank());
    ready.complete();
    done.wait();
    for (int r = 0; r < comm_.size(); ++r) {
      expect_values(output.flat_slice(r * 10, 10), r, 0, "all_gather of late input");
    }
  }

  void host_values() {
    const int ranks = comm_.size();
    const std::string mine(static_cast<std::size_t>(comm_.rank() * 100), 'x');
    const std::vector<std::string> all = comm_.all_gather_bytes(mine, "lengths");
    bool right = static_cast<int>(all.size()) == ranks;
    for (int r = 0; right && r < ranks; ++r) {
      right =
          all[static_cast<std::size_t>(r)] == std::string(static_cast<std::size_t>(r * 100), 'x');
    }
    expect(right, "all_gather_bytes is wrong");
    const int root = ranks - 1;
    const std::string told = comm_.broadcast_bytes(comm_.rank() == root ? "told" : "", root);
    expect(told == "told", "broadcast_bytes is wrong");
    double values[] = {1.5, -1.0 * comm_.rank()};
    comm_.all_reduce_values(values, ReduceOp::kMin);
    expect(values[0] == 1.5 && values[1] == 1.0 - ranks, "all_reduce_values is wrong");
    comm_.barrier_blocking();
  }

  Communicator& comm_;
  Device& device_;
  std::unique_ptr<Stream> stream_;
  std::vector<std::string> failures_;
};

/// The whole suite: the world, its halves, and a group inside one of them. Returns what is wrong.
inline std::vector<std::string> run_all(World& world) {
  std::vector<std::string> failures;
  const auto check = [&](Communicator& comm) {
    Checker checker(world, comm);
    checker.run();
    failures.insert(failures.end(), checker.failures().begin(), checker.failures().end());
  };
  const auto expect = [&](bool good, const std::string& what) {
    if (!good) failures.push_back(fmt::format("rank {}: {}", world.rank(), what));
  };
  check(world.comm());
  // Colours need not be small, keys turn the order round.
  const auto part = world.comm().split(world.rank() % 2 == 0 ? 1000 : -5, -world.rank(), "parity");
  const int even = (world.size() + 1) / 2;
  const int size = world.rank() % 2 == 0 ? even : world.size() - even;
  expect(part->size() == size && part->rank() == size - 1 - world.rank() / 2 &&
             part->name() == "parity",
         "split gives another group");
  check(*part);
  const auto inner = part->split(part->rank() / 2, part->rank(), "pairs");
  check(*inner);
  // Several communicators in turn, all served by one thread.
  for (int i = 0; i < 20; ++i) {
    std::int64_t value[] = {1};
    world.comm().all_reduce_values(value, ReduceOp::kSum);
    part->all_reduce_values(value, ReduceOp::kSum);
    inner->all_reduce_values(value, ReduceOp::kMax);
    expect(value[0] == static_cast<std::int64_t>(world.size()) * part->size(), "groups in turn");
  }
  return failures;
}

}  // namespace tessera::comm_suite
