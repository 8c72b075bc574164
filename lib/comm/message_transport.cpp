#include "comm/message_transport.hpp"

#include <algorithm>
#include <cstring>

#include "comm/reduce.hpp"

namespace tessera {

namespace {

constexpr std::int64_t kMaxStaging = 64 << 20;

void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes > 0 && to != from) std::memcpy(to, from, bytes);
}

template <typename T>
std::span<std::byte> bytes_of(T& record) {
  return std::as_writable_bytes(std::span<T>(&record, 1));
}

}  // namespace

MessageTransport::MessageTransport(Messenger& messenger, const GroupInfo& group,
                                   const Monitor& monitor, std::int64_t staging_bytes)
    : messenger_(messenger),
      group_(group),
      monitor_(monitor),
      ranks_(group.size()),
      rank_(group.rank),
      staging_bytes_(std::max(
          static_cast<std::size_t>(std::clamp<std::int64_t>(staging_bytes, 0, kMaxStaging)),
          static_cast<std::size_t>(ranks_) * 64)),
      staging_(std::make_unique<std::vector<std::byte>>()),
      greetings_(std::make_unique<std::vector<Greeting>>(2 * static_cast<std::size_t>(ranks_))) {}

void MessageTransport::await(Exchange& exchange, const OperationInfo& info) {
  try {
    exchange.await(info);
  } catch (...) {
    if (exchange.memory_in_use()) {
      static_cast<void>(staging_.release());
      static_cast<void>(greetings_.release());
    }
    throw;
  }
}

void MessageTransport::enter(const OperationInfo& info, std::span<const std::int64_t> send_bytes,
                             std::span<const std::int64_t> receive_bytes) {
  const auto n = static_cast<std::size_t>(ranks_);
  const std::span<Greeting> mine = std::span(*greetings_).first(n);
  const std::span<Greeting> theirs = std::span(*greetings_).last(n);
  Exchange exchange(messenger_, group_, monitor_);
  for (std::size_t rank = 0; rank < n; ++rank) {
    mine[rank].info = info;
    mine[rank].bytes_to_you = send_bytes.empty() ? 0 : send_bytes[rank];
    mine[rank].bytes_from_you = receive_bytes.empty() ? 0 : receive_bytes[rank];
  }
  const auto self = static_cast<std::size_t>(rank_);
  theirs[self] = mine[self];
  for (int step = 1; step < ranks_; ++step) {
    const int to = peer(step);
    const int from = peer(ranks_ - step);
    exchange.receive(from, kChannelRecords, bytes_of(theirs[static_cast<std::size_t>(from)]));
    exchange.send(to, kChannelRecords, bytes_of(mine[static_cast<std::size_t>(to)]));
  }
  await(exchange, info);
  std::vector<OperationInfo> records;
  for (const Greeting& greeting : theirs) records.push_back(greeting.info);
  check_agreement(group_, records);
  const auto size = static_cast<std::int64_t>(size_of(static_cast<DType>(info.dtype)));
  for (int rank = 0; rank < ranks_; ++rank) {
    const Greeting& my = mine[static_cast<std::size_t>(rank)];
    const Greeting& their = theirs[static_cast<std::size_t>(rank)];
    if (my.bytes_to_you != their.bytes_from_you) {
      counts_differ(group_, info, rank_, rank, my.bytes_to_you / size, their.bytes_from_you / size);
    }
    if (their.bytes_to_you != my.bytes_from_you) {
      counts_differ(group_, info, rank, rank_, their.bytes_to_you / size, my.bytes_from_you / size);
    }
  }
}

std::size_t MessageTransport::staging_stride() {
  const std::size_t stride = staging_bytes_ / static_cast<std::size_t>(ranks_) / 64 * 64;
  staging_->resize(static_cast<std::size_t>(ranks_) * stride);
  return stride;
}

void MessageTransport::barrier(const OperationInfo& info) { enter(info); }

void MessageTransport::all_gather(const OperationInfo& info, const std::byte* input,
                                  std::byte* output, std::size_t bytes) {
  enter(info);
  Exchange exchange(messenger_, group_, monitor_);
  for (int step = 1; step < ranks_; ++step) {
    const int from = peer(ranks_ - step);
    exchange.receive(from, kChannelData, {output + static_cast<std::size_t>(from) * bytes, bytes});
    exchange.send(peer(step), kChannelData, {input, bytes});
  }
  copy_bytes(output + static_cast<std::size_t>(rank_) * bytes, input, bytes);
  await(exchange, info);
}

void MessageTransport::reduce_scatter(const OperationInfo& info, const std::byte* input,
                                      std::byte* output, std::int64_t elements, DType dtype,
                                      ReduceOp op) {
  enter(info);
  const std::size_t size = size_of(dtype);
  const std::size_t stride = staging_stride();
  std::vector<const std::byte*> sources(static_cast<std::size_t>(ranks_));
  for (std::int64_t begin = 0; begin < elements;) {
    const std::int64_t count = std::min(elements - begin, static_cast<std::int64_t>(stride / size));
    const std::size_t bytes = static_cast<std::size_t>(count) * size;
    const auto at = [&](int part) {
      return input + static_cast<std::size_t>(part * elements + begin) * size;
    };
    Exchange exchange(messenger_, group_, monitor_);
    for (int step = 1; step < ranks_; ++step) {
      const int from = peer(ranks_ - step);
      exchange.receive(from, kChannelData, {staging(from, stride), bytes});
      exchange.send(peer(step), kChannelData, {at(peer(step)), bytes});
    }
    await(exchange, info);
    for (int rank = 0; rank < ranks_; ++rank) {
      sources[static_cast<std::size_t>(rank)] = rank == rank_ ? at(rank) : staging(rank, stride);
    }
    reduce_tree(dtype, op, sources, output + static_cast<std::size_t>(begin) * size, count);
    begin += count;
  }
}

void MessageTransport::all_reduce(const OperationInfo& info, const std::byte* input,
                                  std::byte* output, std::int64_t elements, DType dtype,
                                  ReduceOp op) {
  enter(info);
  const std::size_t size = size_of(dtype);
  const std::size_t stride = staging_stride();
  const auto most = static_cast<std::int64_t>(stride / size) * ranks_;
  std::vector<const std::byte*> sources(static_cast<std::size_t>(ranks_));
  for (std::int64_t begin = 0; begin < elements;) {
    const std::int64_t count = std::min(elements - begin, most);
    const std::int64_t slice = (count + ranks_ - 1) / ranks_;
    const auto first = [&](int rank) { return std::min(count, rank * slice); };
    const auto offset = [&](int rank) {
      return static_cast<std::size_t>(begin + first(rank)) * size;
    };
    const auto bytes = [&](int rank) { return offset(rank + 1) - offset(rank); };
    Exchange scatter(messenger_, group_, monitor_);
    for (int step = 1; step < ranks_; ++step) {
      const int from = peer(ranks_ - step);
      const int to = peer(step);
      scatter.receive(from, kChannelData, {staging(from, stride), bytes(rank_)});
      scatter.send(to, kChannelData, {input + offset(to), bytes(to)});
    }
    await(scatter, info);
    for (int rank = 0; rank < ranks_; ++rank) {
      sources[static_cast<std::size_t>(rank)] =
          rank == rank_ ? input + offset(rank) : staging(rank, stride);
    }
    reduce_tree(dtype, op, sources, output + offset(rank_), first(rank_ + 1) - first(rank_));
    Exchange gather(messenger_, group_, monitor_);
    for (int step = 1; step < ranks_; ++step) {
      const int from = peer(ranks_ - step);
      gather.receive(from, kChannelData, {output + offset(from), bytes(from)});
      gather.send(peer(step), kChannelData, {output + offset(rank_), bytes(rank_)});
    }
    await(gather, info);
    begin += count;
  }
}

void MessageTransport::all_to_all(const OperationInfo& info, const std::byte* input,
                                  std::span<const std::int64_t> send_bytes, std::byte* output,
                                  std::span<const std::int64_t> receive_bytes) {
  enter(info, send_bytes, receive_bytes);
  const auto n = static_cast<std::size_t>(ranks_);
  std::vector<std::size_t> from_offset(n + 1);
  std::vector<std::size_t> to_offset(n + 1);
  for (std::size_t i = 0; i < n; ++i) {
    from_offset[i + 1] = from_offset[i] + static_cast<std::size_t>(receive_bytes[i]);
    to_offset[i + 1] = to_offset[i] + static_cast<std::size_t>(send_bytes[i]);
  }
  Exchange exchange(messenger_, group_, monitor_);
  for (int step = 1; step < ranks_; ++step) {
    const auto from = static_cast<std::size_t>(peer(ranks_ - step));
    const auto to = static_cast<std::size_t>(peer(step));
    exchange.receive(static_cast<int>(from), kChannelData,
                     {output + from_offset[from], static_cast<std::size_t>(receive_bytes[from])});
    exchange.send(static_cast<int>(to), kChannelData,
                  {input + to_offset[to], static_cast<std::size_t>(send_bytes[to])});
  }
  const auto self = static_cast<std::size_t>(rank_);
  copy_bytes(output + from_offset[self], input + to_offset[self],
             static_cast<std::size_t>(send_bytes[self]));
  await(exchange, info);
}

void MessageTransport::broadcast(const OperationInfo& info, std::byte* data, std::size_t bytes,
                                 int root) {
  enter(info);
  // A binomial tree over the ranks counted from the root.
  const int position = (rank_ - root + ranks_) % ranks_;
  const auto rank_at = [&](int place) { return (place + root) % ranks_; };
  int bit = 1;
  for (; bit < ranks_; bit <<= 1) {
    if ((position & bit) == 0) continue;
    Exchange from_parent(messenger_, group_, monitor_);
    from_parent.receive(rank_at(position - bit), kChannelData, {data, bytes});
    await(from_parent, info);
    break;
  }
  Exchange to_children(messenger_, group_, monitor_);
  for (bit >>= 1; bit > 0; bit >>= 1) {
    if (position + bit < ranks_) {
      to_children.send(rank_at(position + bit), kChannelData, {data, bytes});
    }
  }
  await(to_children, info);
}

}  // namespace tessera
