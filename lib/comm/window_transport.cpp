#include "comm/window_transport.hpp"

#include <algorithm>
#include <cstring>

#include "base/check.hpp"
#include "comm/futex.hpp"
#include "comm/reduce.hpp"

namespace tessera {

namespace {

// Up to this many bytes over all ranks, each rank reduces everything by itself: one meeting less.
constexpr std::size_t kSmallReduction = 32 << 10;

std::int64_t divide_up(std::int64_t value, std::int64_t by) { return (value + by - 1) / by; }

void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes > 0 && to != from) std::memcpy(to, from, bytes);
}

}  // namespace

WindowTransport::WindowTransport(WindowLayout layout, const GroupInfo& group,
                                 const Monitor& monitor, std::chrono::nanoseconds spin)
    : layout_(std::move(layout)),
      group_(group),
      monitor_(monitor),
      spin_(spin),
      ranks_(group.size()),
      rank_(group.rank) {}

void WindowTransport::enter(const OperationInfo& info) {
  info_ = info;
  layout_.slot(rank_).info[info.sequence & 1] = info;
  compared_ = false;
}

void WindowTransport::meet() {
  pass_gate();
  if (compared_) return;
  compared_ = true;
  // A rank that is ahead writes the other of its two records, so these hold still.
  const auto record = [&](int rank) -> const OperationInfo& {
    return layout_.slot(rank).info[info_.sequence & 1];
  };
  bool agreed = true;
  for (int rank = 0; rank < ranks_; ++rank) agreed = agreed && record(rank).agrees_with(info_);
  if (agreed) return;
  std::vector<OperationInfo> records;
  for (int rank = 0; rank < ranks_; ++rank) records.push_back(record(rank));
  check_agreement(group_, records);
}

void WindowTransport::pass_gate() {
  WindowLayout::Gate& gate = layout_.gate();
  const std::uint32_t generation = gate.generation.load(std::memory_order_acquire);
  layout_.slot(rank_).arrivals.store(++arrivals_, std::memory_order_release);
  if (gate.arrived.fetch_add(1) + 1 == static_cast<std::uint32_t>(ranks_)) {
    gate.arrived.store(0);
    gate.generation.store(generation + 1);
    if (gate.sleepers.load() > 0) futex_wake_all(gate.generation);
    return;
  }
  const auto start = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - start < spin_) {
    for (int i = 0; i < 32; ++i) {
      if (gate.generation.load(std::memory_order_acquire) != generation) return;
      pause_core();
    }
  }
  const auto deadline = monitor_.deadline();
  for (;;) {
    gate.sleepers.fetch_add(1);
    if (gate.generation.load() == generation) {
      futex_wait(gate.generation, generation, monitor_.slice());
    }
    gate.sleepers.fetch_sub(1);
    if (gate.generation.load(std::memory_order_acquire) != generation) return;
    monitor_.check();
    if (std::chrono::steady_clock::now() >= deadline) report_missing();
  }
}

void WindowTransport::report_missing() {
  std::vector<int> missing;
  for (int rank = 0; rank < ranks_; ++rank) {
    if (layout_.slot(rank).arrivals.load(std::memory_order_acquire) < arrivals_) {
      missing.push_back(rank);
    }
  }
  timed_out(group_, info_, monitor_.timeout_s(), missing);
}

void WindowTransport::barrier(const OperationInfo& info) {
  enter(info);
  meet();
}

void WindowTransport::all_gather(const OperationInfo& info, const std::byte* input,
                                 std::byte* output, std::size_t bytes) {
  enter(info);
  std::size_t begin = 0;
  do {
    const std::size_t count = std::min(bytes - begin, layout_.half_bytes());
    copy_bytes(half(rank_), input + begin, count);
    copy_bytes(output + static_cast<std::size_t>(rank_) * bytes + begin, input + begin, count);
    meet();
    for (int step = 1; step < ranks_; ++step) {
      const int peer = (rank_ + step) % ranks_;
      copy_bytes(output + static_cast<std::size_t>(peer) * bytes + begin, half(peer), count);
    }
    ++chunk_;
    begin += count;
  } while (begin < bytes);
}

void WindowTransport::reduce_scatter(const OperationInfo& info, const std::byte* input,
                                     std::byte* output, std::int64_t elements, DType dtype,
                                     ReduceOp op) {
  enter(info);
  const std::size_t size = size_of(dtype);
  // Each half holds a piece of every peer's part, on a cache line of its own.
  const std::size_t part_bytes = layout_.half_bytes() / static_cast<std::size_t>(ranks_) / 64 * 64;
  const auto part_elements = static_cast<std::int64_t>(part_bytes / size);
  std::vector<const std::byte*> sources(static_cast<std::size_t>(ranks_));
  std::int64_t begin = 0;
  do {
    const std::int64_t count = std::min(elements - begin, part_elements);
    const auto at = [&](int part) {
      return input + static_cast<std::size_t>(part * elements + begin) * size;
    };
    for (int peer = 0; peer < ranks_; ++peer) {
      if (peer == rank_) continue;
      copy_bytes(half(rank_) + static_cast<std::size_t>(peer) * part_bytes, at(peer),
                 static_cast<std::size_t>(count) * size);
    }
    meet();
    for (int peer = 0; peer < ranks_; ++peer) {
      sources[static_cast<std::size_t>(peer)] =
          peer == rank_ ? at(rank_) : half(peer) + static_cast<std::size_t>(rank_) * part_bytes;
    }
    reduce_tree(dtype, op, sources, output + static_cast<std::size_t>(begin) * size, count);
    ++chunk_;
    begin += count;
  } while (begin < elements);
}

void WindowTransport::all_reduce(const OperationInfo& info, const std::byte* input,
                                 std::byte* output, std::int64_t elements, DType dtype,
                                 ReduceOp op) {
  enter(info);
  const std::size_t size = size_of(dtype);
  const auto chunk_elements = static_cast<std::int64_t>(layout_.half_bytes() / size);
  std::vector<const std::byte*> sources(static_cast<std::size_t>(ranks_));
  std::int64_t begin = 0;
  do {
    const std::int64_t count = std::min(elements - begin, chunk_elements);
    const std::size_t bytes = static_cast<std::size_t>(count) * size;
    std::byte* const out = output + static_cast<std::size_t>(begin) * size;
    copy_bytes(half(rank_), input + static_cast<std::size_t>(begin) * size, bytes);
    meet();
    if (bytes * static_cast<std::size_t>(ranks_) <= kSmallReduction) {
      for (int peer = 0; peer < ranks_; ++peer)
        sources[static_cast<std::size_t>(peer)] = half(peer);
      reduce_tree(dtype, op, sources, out, count);
    } else {
      // Rank r reduces slice r of everybody's chunk into its own window: nobody else reads slice r
      // there before the second meeting.
      const std::int64_t slice = divide_up(divide_up(count, ranks_), 64) * 64;
      const auto first = [&](int rank) { return std::min(count, rank * slice); };
      const auto offset = [&](int rank) { return static_cast<std::size_t>(first(rank)) * size; };
      for (int peer = 0; peer < ranks_; ++peer) {
        sources[static_cast<std::size_t>(peer)] = half(peer) + offset(rank_);
      }
      reduce_tree(dtype, op, sources, half(rank_) + offset(rank_), first(rank_ + 1) - first(rank_));
      meet();
      for (int step = 0; step < ranks_; ++step) {
        const int peer = (rank_ + step) % ranks_;
        copy_bytes(out + offset(peer), half(peer) + offset(peer), offset(peer + 1) - offset(peer));
      }
    }
    ++chunk_;
    begin += count;
  } while (begin < elements);
}

std::int64_t WindowTransport::agree_on_rounds(std::size_t part_bytes) {
  const auto n = static_cast<std::size_t>(ranks_);
  std::int64_t most = 0;
  for (int source = 0; source < ranks_; ++source) {
    const std::span<const std::int64_t> sent = layout_.counts(source, info_.sequence & 1);
    for (int destination = 0; destination < ranks_; ++destination) {
      const std::int64_t bytes = sent[static_cast<std::size_t>(destination)];
      const std::int64_t expected =
          layout_.counts(destination, info_.sequence & 1)[n + static_cast<std::size_t>(source)];
      if (bytes != expected) {
        const auto size = static_cast<std::int64_t>(size_of(static_cast<DType>(info_.dtype)));
        counts_differ(group_, info_, source, destination, bytes / size, expected / size);
      }
      most = std::max(most, bytes);
    }
  }
  return divide_up(most, static_cast<std::int64_t>(part_bytes));
}

void WindowTransport::all_to_all(const OperationInfo& info, const std::byte* input,
                                 std::span<const std::int64_t> send_bytes, std::byte* output,
                                 std::span<const std::int64_t> receive_bytes) {
  enter(info);
  const auto n = static_cast<std::size_t>(ranks_);
  const std::span<std::int64_t> counts = layout_.counts(rank_, info.sequence & 1);
  std::copy(send_bytes.begin(), send_bytes.end(), counts.begin());
  std::copy(receive_bytes.begin(), receive_bytes.end(), counts.subspan(n).begin());
  const std::size_t part_bytes = layout_.half_bytes() / n / 64 * 64;
  std::int64_t rounds = 1;
  for (std::int64_t round = 0; round < rounds; ++round) {
    const std::size_t begin = static_cast<std::size_t>(round) * part_bytes;
    const auto piece = [&](std::int64_t bytes) {
      const auto total = static_cast<std::size_t>(bytes);
      return begin >= total ? 0 : std::min(part_bytes, total - begin);
    };
    const std::byte* from = input;
    for (std::size_t peer = 0; peer < n; ++peer) {
      const std::size_t bytes = piece(send_bytes[peer]);
      if (bytes > 0) copy_bytes(half(rank_) + peer * part_bytes, from + begin, bytes);
      from += send_bytes[peer];
    }
    meet();
    if (round == 0) rounds = agree_on_rounds(part_bytes);
    std::byte* to = output;
    for (std::size_t peer = 0; peer < n; ++peer) {
      const std::size_t bytes = piece(receive_bytes[peer]);
      const std::byte* const part =
          half(static_cast<int>(peer)) + static_cast<std::size_t>(rank_) * part_bytes;
      if (bytes > 0) copy_bytes(to + begin, part, bytes);
      to += receive_bytes[peer];
    }
    ++chunk_;
  }
}

void WindowTransport::broadcast(const OperationInfo& info, std::byte* data, std::size_t bytes,
                                int root) {
  enter(info);
  std::size_t begin = 0;
  do {
    const std::size_t count = std::min(bytes - begin, layout_.half_bytes());
    if (rank_ == root) copy_bytes(half(root), data + begin, count);
    meet();
    if (rank_ != root) copy_bytes(data + begin, half(root), count);
    ++chunk_;
    begin += count;
  } while (begin < bytes);
}

}  // namespace tessera
